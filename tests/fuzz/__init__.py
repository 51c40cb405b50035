"""Coverage-guided fuzzing of the compiled functions under sanitizers: ``make fuzz``."""
