// Package registry reads a disk from a container image: the one file in its folder /disk, streamed from the layer
// during the download, or read from the kubelet's mount of the image.
//
// Layers are searched from the topmost down, without the files that upper layers have removed, until one has a file in
// /disk; the layers below are not downloaded. A disk is valid only when the rest of its layer was read and contains no
// second disk, and the whole layer has the digest in the image's manifest (whose own digest is compared with the response
// for the tag).
//
// The package must not unpack anything to a file system, and must not know formats.
package registry
