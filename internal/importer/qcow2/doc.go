// Package qcow2 reads qcow2 images in the order of the file, in which a network delivers them, not of the disk.
//
//	      read tables by ranges        read tables as they pass
//	       |                              |
//	tables +--> Map: extents by place ----+--> Walk: the extents and their data, once
//
// If the source supports ranges, Load reads the tables first and Ordered walks the file with all of them known; the
// walk can resume at any of its places. In a plain stream, Streamed reads the tables as they pass, and buffers data
// that passes before its table in a file.
//
// Images are hostile: every size is checked against the promised disk before memory is allocated, and every offset against
// its alignment; only the bytes of the one image are read. Internal snapshots are skipped.
package qcow2
