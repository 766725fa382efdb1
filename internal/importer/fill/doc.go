// Package fill is the engine of the import worker: it makes a disk of content in one
// pass from its source to the target, whatever the format and the compression.
//
//	source ─ pull ─ window(sum) ─┬───────────────┬─ raw ─────────┬─ writers ─ disk
//	                             └─ unpack ─ window ─ qcow2 ─────┤
//	                                             └─ spool ─ qemu-img
//
// What is on the claim, and what the next worker makes of it when this one dies:
//
//	.disk.img.part alone            begins again
//	and .disk.img.journal           goes on at Place, if the source still has the Version
//	and the journal says Whole      renames it
//	disk.img                        whole; a worker that comes all the same, because nobody has heard
//	                                of it, removes it and begins again: a claim may not have room for two
//
// The journal is written only after the data it speaks of is on the disk, and removed
// before the part is emptied. With a block claim the journal is in the worker's pod, and
// lost with it: then the work begins again.
//
// It must not know where content comes from, and nothing may look whole before the
// checksum, the source's own Verify and every decompressor have agreed.
package fill
