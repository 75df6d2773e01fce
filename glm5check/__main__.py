"""`python -m glm5check` is `glm5check`."""

from glm5check.cli import main

main()
