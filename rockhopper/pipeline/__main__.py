"""Run a job: `python -m rockhopper.pipeline JOB`."""

from rockhopper.pipeline.jobs.command_line import main

if __name__ == "__main__":
    main()
