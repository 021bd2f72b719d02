"""Links names of the interface, paths of headers and of pages to where they are described."""
import re

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.nodes import make_refnode

NAME = re.compile(r"(\b(?:umf[A-Z]\w+|UMF_\w+|umf_\w+)\b(?:\(\))?|\bumf(?:/\w+)*\.h\b|\bdocs/[\w/-]+\.md\b)")
CLOSED = (nodes.reference, nodes.literal_block, nodes.title, nodes.raw, nodes.image)
DECLARATION = "sig"  # class of what Sphinx makes of declarations


class Names(SphinxPostTransform):
    default_priority = 400  # after references are resolved

    def place_of(self, name):
        """Page and anchor, or None."""
        pages = self.env.found_docs
        if name.endswith(".h") and "reference/" + name[:-2] in pages:
            return "reference/" + name[:-2], ""
        if name.endswith(".md") and name[5:-3] in pages:
            return name[5:-3], ""
        return self.objects().get(name.removesuffix("()"))

    def objects(self):
        """Page and anchor of everything that the reference describes."""
        if not hasattr(self.app, "umf_objects"):
            everything = self.env.get_domain("c").get_objects()
            self.app.umf_objects = {name.rpartition(".")[2]: place for name, _, _, *place, _ in everything}
        return self.app.umf_objects

    def linked(self, name, node):
        """The node as a link to the name's description; as it is if there is none."""
        place = self.place_of(name)
        if not place or (place[0] == self.env.docname and not place[1]):
            return node
        return make_refnode(self.app.builder, self.env.docname, *place, node)

    def run(self, **kwargs):
        for node in list(self.document.findall(nodes.Text)):
            whole = node.parent if isinstance(node.parent, nodes.literal) else None
            if any(isinstance(above, CLOSED) or DECLARATION in above.get("classes", []) for above in ancestors(node)):
                continue
            if whole and NAME.fullmatch(node):
                whole.replace_self(self.linked(str(node), whole.deepcopy()))
            elif not whole and NAME.search(node):
                parts = [part for part in NAME.split(node) if part]
                node.parent.replace(node, [self.linked(part, nodes.Text(part)) for part in parts])


def ancestors(node):
    while node.parent is not None:
        node = node.parent
        yield node


def setup(app):
    app.add_post_transform(Names)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
