// Package volume keeps volumes and snapshots as files. It creates, copies, grows and deletes them. It must serve no
// protocol, mount and attach nothing, and have no other state than the files (decision 093).
//
// A disk is a folder: a node's own, or the one that all nodes share.
//
//	DISK/volumes/NAME/volume.json   the record: size, kind, source
//	DISK/volumes/NAME/data          the image file, or the folder of a Folder
//	DISK/snapshots/NAME/…           the same; nobody writes to it
//
// The rename of its folder creates or deletes a volume. A new one is filled as .new-NAME, synced,
// and renamed; a deleted one is renamed to .gone-NAME first. After a crash, Sweep removes such
// folders at the next start, and the call is repeated. Growing first extends the file and then
// writes the record, so a repeated call completes it.
package volume
