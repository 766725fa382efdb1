package layout

// SecondaryInterface is the launcher pod's interface on a network of spec.networks that is not
// the pods' own. virt-controller asks the network plugin for it by this name, which is upstream's.
func SecondaryInterface(network string) string { return SecondaryLink("pod", network) }

// SecondaryLink names a link of such a network in the launcher pod. The prefix has four characters
// at most: a link's name has 15.
func SecondaryLink(prefix, network string) string { return prefix + HexDigest(network, 11) }
