"""The gRPC server that answers KEDA: a thin, asynchronous edge around the accelscale library."""
