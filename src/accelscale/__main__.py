"""``python -m accelscale`` is the command ``accelscale``."""

import sys

from accelscale.cli import main

sys.exit(main())
