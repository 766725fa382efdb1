// Package qcow2 reads qcow2 images in the order of the file, which is the order
// in which a network brings them, and not in the order of the disk (decision 100).
//
//	      read tables by ranges        tables seen as they pass
//	       |                              |
//	tables +--> Map: extents by place ----+--> Walk: the extents and their data, once
//
// Where the source takes ranges, Load reads the tables first and Ordered walks the
// file with all of it known; the walk can continue at any of its places. In a plain
// stream, Streamed learns the tables as they pass, and buffers in a file what passes
// before the table that maps it.
//
// Images are hostile: every size is checked against the disk that was promised
// before memory is taken for it, every place against its alignment, and nothing but
// the bytes of the one image is ever read: a reference to another file ends the
// work. Internal snapshots are skipped.
package qcow2
