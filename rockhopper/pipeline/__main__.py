"""`python -m rockhopper.pipeline JOB` runs a job."""

from rockhopper.pipeline.jobs.command_line import main

if __name__ == "__main__":
    main()
