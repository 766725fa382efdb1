// Package registry is the content of a disk that lies in a container image: the one
// file in its folder /disk, streamed out of the layer while that is downloaded, or, when
// the node's container runtime has pulled the image, read where the kubelet has mounted it.
//
// Layers are looked at from the topmost one down, with respect to what those above have
// removed, until one has a file in /disk; layers below that are not downloaded. A disk
// counts only when the rest of its layer was read, has no second disk, and the whole of
// it has the digest that the image's manifest says (the manifest's own digest is checked
// against the tag's answer).
//
// The package must not unpack anything to a file system, and must not know formats.
package registry
