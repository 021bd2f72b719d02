# Settings of Sphinx. pages.py makes the source folder; build.sh passes the version and where Doxygen left its XML.
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = "libumf"
copyright = "its contributors. Apache-2.0 WITH LLVM-exception"
extensions = ["myst_parser", "breathe", "pages", "names"]

myst_heading_anchors = 4  # links to headings, as code hosts make them
highlight_language = "text"  # of what names no language
primary_domain = "c"

breathe_default_project = "umf"
breathe_domain_by_extension = {"h": "c", "hpp": "cpp"}
breathe_show_include = False  # each page says it once

# Targets of links must exist, but for types in declarations: those of C and of drivers, and opaque
# ones.
nitpicky = True
# Names of C are not found from C++.
nitpick_ignore_regex = [("c:identifier", r"\w+_t|va_list|\w+_st|\w+\.@\d+"),  # last: a union without a name
                        ("cpp:identifier", r"(umf[A-Z]|umf_|UMF_)\w+|(::)?(cuda|detail)\b.*")]

html_theme = "furo"
html_copy_source = False
html_static_path = ["site.css", "copy.js"]
html_css_files = ["site.css"]
html_js_files = ["copy.js"]
pygments_dark_style = "github-dark"
