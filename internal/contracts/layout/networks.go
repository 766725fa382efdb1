package layout

// SecondaryInterface returns the launcher pod's interface on a secondary network. virt-controller requests it from the
// network plugin by this name, which is upstream's.
func SecondaryInterface(network string) string { return SecondaryLink("pod", network) }

// SecondaryLink returns the name of a link of such a network. The prefix has at most four characters: a name has 15.
func SecondaryLink(prefix, network string) string { return prefix + HexDigest(network, 11) }
