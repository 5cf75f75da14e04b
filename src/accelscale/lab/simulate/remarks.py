"""What must be said beside the figures of a simulation: what was assumed, and what looks wrong."""

from __future__ import annotations

from collections.abc import Iterator

from accelscale.lab.course import scale_down_window
from accelscale.lab.simulate.run import Simulation
from accelscale.lab.simulate.summary import SimulationSummary
from accelscale.lab.wording import number, spell

OFTEN = 0.5
"""The share of the time from which something counts as most of it."""


def assumptions(simulation: Simulation) -> list[str]:
    """What the model takes for granted in this simulation, in sentences."""
    return list(_assumptions(simulation))


def warnings(simulation: Simulation, summary: SimulationSummary) -> list[str]:
    """What a reader should look at before believing the policy or the figures."""
    return [
        *simulation.arrivals.notes,
        *_of_policy(simulation),
        *_of_requests(simulation, summary),
        *_of_course(simulation, summary),
    ]


def _assumptions(simulation: Simulation) -> Iterator[str]:
    model, conditions = simulation.model, simulation.conditions
    yield (
        f"A server ({model.name}, {model.devices} device{'s' * (model.devices != 1)}) works in"
        f" steps: {_ms(model.step_seconds)} for the weights,"
        f" {_ms(model.step_seconds_per_request)} for each running request,"
        f" {_ms(1000 * model.step_seconds_per_cached_token)} for each thousand tokens in the"
        f" cache, and prompts at {number(model.prefill_tokens_per_second)} tokens a second, at most"
        f" {model.step_tokens} tokens a step."
    )
    yield (
        f"At most {model.max_requests} requests are in work at once, and their prompts and answers"
        f" must fit into a cache of {model.cache_tokens} tokens; none is ever thrown out again, no"
        " prompt is cached for the next request, and nobody gives up waiting."
    )
    yield (
        "The router gives a request to the serving replica with the fewest; there it stays. A"
        f" removed replica has {conditions.grace:g} s to finish what is in work; what it cannot"
        " finish begins again elsewhere."
    )
    yield (
        f"A new replica loads for {model.load_seconds:g} s, is Ready after"
        f" {simulation.readiness_delay:g} s, and serves once both are past. Pods are scheduled at"
        " once and a device is always free."
    )
    yield (
        f"A device draws {model.idle_watts:g} W idle or loading, {model.decode_watts:g} W while one"
        f" request gets its tokens, {model.decode_watts_per_doubling:g} W more with each doubling,"
        f" and {model.prefill_watts:g} W while prompts are read; hosts and cooling are not counted."
    )
    memory = "is reserved at start, so memory in use does not tell the load"
    if not model.reserves_cache:
        memory = "is taken as it is needed, so memory in use follows the load"
    yield (
        "utilization_percent is the share of time with a step under way, whatever its batch:"
        f" {model.full_utilization_percent:g} % without a pause. The cache {memory}."
    )
    yield (
        f"Devices are sampled every {conditions.interval:g} s and nothing delays the samples;"
        f" external numbers are read every {conditions.scrape_interval:g} s. Polls begin at"
        f" {conditions.poll_phase:g} s, HPA syncs at {conditions.sync_phase:g} s and then every"
        f" {conditions.controller.sync_period:g} s; the ScaledObject is created at the start, with"
        f" {simulation.start_replicas} Ready replicas."
    )
    keda = conditions.keda
    yield (
        f"HPA tolerance {conditions.controller.tolerance:g}"
        f" ({conditions.controller.tolerance_form}), KEDA {keda.major}.{keda.minor}.{keda.patch}."
    )
    for silence in conditions.silences:
        who = "any replica"
        if silence.replicas is not None:
            who = f"the {silence.replicas} oldest replicas"
        yield (
            f"From {spell(silence.start)} to {spell(silence.end)} no agent tells anything of {who}."
        )
    if simulation.policy.pushes:
        yield "external-push is simulated as external: activity is seen at the next poll."


def _of_policy(simulation: Simulation) -> Iterator[str]:
    policy, model = simulation.policy, simulation.model
    for index, trigger in enumerate(policy.triggers):
        name = f"trigger {index} ({trigger.metric}): " if len(policy.triggers) > 1 else ""
        yield from (f"{name}{warning}" for warning in trigger.warnings)
        if trigger.metric.startswith("memory_used") and model.reserves_cache:
            yield (
                f"{name}{trigger.metric} does not move once the model is loaded, for the cache is"
                " reserved at start: it tells neither load nor idleness"
            )
        signal = simulation.signals.get(trigger.metric)
        if signal is not None and signal.of_servers and not signal.empty_is_error:
            yield (
                f"{name}an empty answer of Prometheus counts as 0 (KEDA's ignoreNullValues is true"
                ' unless set to "false"): losing the scrape looks like an empty queue'
            )
    for left_out in policy.left_out:
        yield (
            f"{left_out} was left out: it is not known what it would read here (--signal names it)"
        )
    window = scale_down_window(policy, simulation.conditions.controller)
    if simulation.load_time > window:
        yield (
            f"loading takes {simulation.load_time:g} s, longer than the {window:g} s for which the"
            " HPA remembers what it asked for: it may remove replicas that have not helped yet"
        )


def _of_requests(simulation: Simulation, summary: SimulationSummary) -> Iterator[str]:
    if summary.refused:
        yield (
            f"{summary.refused} requests were refused: prompt and answer do not fit into the cache"
            f" of {simulation.model.cache_tokens} tokens"
        )
    if summary.unfinished:
        yield (
            f"{summary.unfinished} requests were not done when the simulation ended,"
            f" {simulation.conditions.tail:g} s after the last one came: they count as the slowest"
        )
    if summary.begun_again:
        yield (
            f"{summary.begun_again} requests lost their replica and began again elsewhere: a longer"
            " grace period, or slower scaling in, avoids that"
        )
    if simulation.arrivals.seconds < 900:
        yield (
            f"requests came for {spell(simulation.arrivals.seconds)} only: that says little about"
            " scaling in"
        )


def _of_course(simulation: Simulation, summary: SimulationSummary) -> Iterator[str]:
    most = simulation.policy.scaled_object.max_replicas
    above = summary.above_threshold_share or 0.0
    if summary.at_maximum_share > 0.05 and above > 0.05:
        yield (
            f"at maxReplicaCount ({most}) in {summary.at_maximum_share:.0%} of the time, above the"
            f" threshold in {above:.0%}"
        )
    if summary.busy_share is not None and summary.busy_share < 0.25:
        yield (
            f"devices were busy in {summary.busy_share:.0%} of the time that they were held: the"
            " policy keeps far more than the requests need on average"
        )
    if summary.no_data_share > 0.05:
        last = [one.errors[0] for one in simulation.answered if one.errors][-1]
        yield f"no answer in {summary.no_data_share:.0%} of the time, for example: {last}"
    if summary.flaps >= 3 and summary.flaps > summary.hours / 2:
        yield (
            f"flapping: {summary.flaps} changes went against the one before within 10 minutes; a"
            " longer window or scaleDown.stabilizationWindowSeconds calms that"
        )
    if summary.replicas_least == 0 and summary.unfinished and not summary.starts_from_zero:
        yield (
            "stayed at 0 replicas while requests waited: nothing that accelerators show can wake a"
            " workload; add a trigger on a queue that is there without pods"
        )


def _ms(seconds: float) -> str:
    return f"{number(1000 * seconds)} ms"
