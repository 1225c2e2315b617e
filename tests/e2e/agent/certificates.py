# SPDX-License-Identifier: Apache-2.0
"""Certificates for the agent's web server, made by openssl."""
import subprocess

CA = """[ca]
default_ca = here
[here]
database = {0}/index
new_certs_dir = {0}
rand_serial = yes
default_md = sha256
policy = any
[any]
commonName = supplied
"""


def certificate(folder, name="server", begin="20200101000000Z", end="20990101000000Z"):
    """(certificate, key) as PEM files in the folder, valid from begin to end."""
    made, key, request = (folder / (name + suffix) for suffix in (".crt", ".key", ".csr"))
    (folder / "ca.conf").write_text(CA.format(folder))
    (folder / "index").write_text("")
    for command in (
        ["req", "-new", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=a", "-keyout", key]
        + ["-out", request],
        ["ca", "-batch", "-notext", "-selfsign", "-config", folder / "ca.conf", "-keyfile", key]
        + ["-in", request, "-out", made, "-startdate", begin, "-enddate", end],
    ):
        subprocess.run(["openssl", *command], check=True, stderr=subprocess.DEVNULL)
    return made, key
