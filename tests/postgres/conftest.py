"""The fixtures of the gateway's tests, for those here."""
import importlib.util
import os

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "gateway", "conftest.py")
spec = importlib.util.spec_from_file_location("gateway_fixtures", PATH)
fixtures = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fixtures)
globals().update({name: value for name, value in vars(fixtures).items() if not name.startswith("__")})
