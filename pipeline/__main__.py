"""`python -m pipeline JOB` runs a job."""

from pipeline.jobs.command_line import main

if __name__ == "__main__":
    main()
