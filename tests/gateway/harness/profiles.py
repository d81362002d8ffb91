"""The table of profiles, as the module has it. Run as a program, this prints the tables of docs/profiles.md."""
import os
import re

if __name__ == "__main__":
    SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
else:
    from .environment import SOURCE


def read():
    """The names of the profiles, and a dictionary for each: directive (with the name of the problem, if it has one) -> value."""
    with open(os.path.join(SOURCE, "nginx", "ngx_http_once_profile.c"), encoding="ascii") as file:
        text = file.read()
    names = re.findall(r'"(\w+)"', re.search(r"profile_names\[\] = \{(.*?)\};", text, re.DOTALL).group(1))
    profiles = {name: {} for name in names}
    table = re.search(r"ngx_http_once_rules\[\] = \{(.*?)\{ NULL", text, re.DOTALL).group(1)
    literal = r'(?:"(?:[^"\\]|\\.)*"\s*)+'
    for rule in re.finditer(rf'\{{\s*"([^"]*)",\s*\{{((?:\s*{literal},?)*)\s*\}}\s*\}}', table):
        values = ["".join(re.findall(r'"((?:[^"\\]|\\.)*)"', value)).replace('\\"', '"')
                  for value in re.findall(literal, rule.group(2))]
        assert len(values) == len(names), rule.group(1)
        for name, value in zip(names, values):
            profiles[name][rule.group(1)] = value
    return names, profiles


def error(rules, problem):
    """What a profile says of a problem: status (None: 502 or 504), code, type."""
    words = dict(word.split("=", 1) for word in rules[f"once_error {problem}"].split())
    return (int(words["status"]) if "status" in words else None), words["code"], words["type"]


def cells(*texts):
    return "| " + " | ".join(texts) + " |"


def tables():
    """The tables in Markdown, line by line."""
    names, profiles = read()
    rules = list(profiles[names[0]])
    head = [cells("", *(f"`{name}`" for name in names)), "|---" * (len(names) + 1) + "|"]
    lines = list(head)
    for rule in rules:
        if not rule.startswith(("once_error ", "once_error_body")):
            lines.append(cells(f"[{rule}](directives.md#{rule})", *(f"`{profiles[name][rule]}`" for name in names)))
    lines += [""] + head
    for rule in rules:
        if rule.startswith("once_error "):
            problem = rule.split()[1]
            said = [error(profiles[name], problem) for name in names]
            lines.append(cells(f"[{problem}](problems.md#{problem})",
                               *(f"{status or '502, 504'} `{code}` `{kind}`" for status, code, kind in said)))
    lines += ["", cells("profile", "body of an error"), "|---|---|"]
    lines += [cells(f"`{name}`", f"`{profiles[name]['once_error_body']}`") for name in names]
    return lines


if __name__ == "__main__":
    print("\n".join(tables()))
