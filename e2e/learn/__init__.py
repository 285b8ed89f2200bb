"""docs/how-services-work.md and its translation, made from templates and a real run. Start reading at ``__main__``."""
