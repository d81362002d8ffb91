"""What the tests are run with: programs, the module and how it was built. Set by ctest; the defaults fit a plain `make build`.

    ONCE_BUILD        the build directory: once, ngx_http_once_module.so
    ONCE_MODULE       the module, where it is elsewhere
    ONCE_NGINX        nginx (ONCE_BUILD/nginx-sanitized where that is, else /usr/sbin/nginx)
    GATEWAY_LOG       level of the error log: info, debug
    GATEWAY_PATIENCE  seconds after which something that was waited for has failed (30)
"""
import functools
import os
import re
import subprocess

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SOURCE = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.abspath(os.environ.get("ONCE_BUILD", os.path.join(SOURCE, "build")))
MODULE = os.path.abspath(os.environ.get("ONCE_MODULE", os.path.join(BUILD, "ngx_http_once_module.so")))
ONCE = os.path.join(BUILD, "once")
SANITIZED = os.path.join(BUILD, "nginx-sanitized")  # the packaged nginx with the runtimes that a sanitized module needs
NGINX = os.environ.get("ONCE_NGINX", SANITIZED if os.path.exists(SANITIZED) else "/usr/sbin/nginx")
MODULES = "/usr/lib/nginx/modules"  # of nginx's other packages
LEVEL = os.environ.get("GATEWAY_LOG", "info")
ROOT = os.geteuid() == 0


@functools.lru_cache(maxsize=None)
def version(server="nginx"):
    """Of nginx: (1, 22, 1). Angie says first which version it is itself, and no other server does: None."""
    says = subprocess.run([NGINX, "-V"], capture_output=True, text=True, check=True).stderr
    found = re.search(rf"^{server} version: \w+/(\d+)\.(\d+)\.(\d+)", says, re.MULTILINE)
    return found and tuple(int(part) for part in found.groups())


def packaged():
    """It is Debian's nginx, which the modules of nginx's other packages are for."""
    return NGINX in (SANITIZED, "/usr/sbin/nginx")


def slow():
    """Everything takes longer: fewer repetitions, where repetitions are what a test does."""
    return NGINX == SANITIZED


def address():
    """An address that no other test process uses: loopback has 2^24 of them, and outgoing connections come from 127.0.0.1."""
    pid = os.getpid()
    return f"127.{64 + (pid >> 16) % 128}.{pid >> 8 & 255}.{pid & 255}"
