// Package volume keeps volumes and snapshots as files: what exists, how it is
// made, copied, grown and deleted. It serves no protocol, mounts nothing and
// attaches nothing, and it keeps no state but the files (decisions 090 and 093).
//
// A disk is a folder: a node's own, or the one that all nodes share.
//
//	DISK/volumes/NAME/volume.json   the record: size, kind, what it was made from
//	DISK/volumes/NAME/data          the image file, or the folder of a Folder
//	DISK/snapshots/NAME/…           the same; nobody writes to it
//
// A volume is created and deleted by the rename of its folder: it is made as
// .new-NAME, synced, and renamed; it is deleted by renaming it to .gone-NAME. A crash
// in between leaves a folder with such a name, which Sweep removes at the next
// start, and the call is made again. Growing first makes the file
// longer and then writes the record; a call that finds only the first done does
// the second.
package volume
