"""What brings the package to people: it is built, and what was built is checked, before anybody installs it.

Nothing here is in the wheel, and nothing here imports the package. Begin with ``check``, which
``make release-check`` runs.
"""
