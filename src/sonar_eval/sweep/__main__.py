"""`python -m sonar_eval.sweep -m model=a,b scenario=x,y fault=none,outage`."""

from .app import main

if __name__ == "__main__":
    main()
