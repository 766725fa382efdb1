// Package fill is the engine of the import worker: it makes a disk from content in one pass from its
// source to the target, for all formats and compressions.
//
//	source ─ pull ─ window(sum) ─┬───────────────┬─ raw ─────────┬─ writers ─ disk
//	                             └─ unpack ─ window ─ qcow2 ─────┤
//	                                             └─ spool ─ qemu-img
//
// The files on the claim, and the next worker's action on them if this one crashes:
//
//	.disk.img.part alone            begin again
//	and .disk.img.journal           continue at Place, if the source still has the Version
//	and the journal has Whole       rename it
//	disk.img                        complete; a worker that starts nevertheless, because its predecessor's
//	                                result was lost, removes it and begins again: a claim may not have
//	                                space for two
//
// The journal is written only after its data is on the disk, and removed before the part is emptied.
// For a block claim the journal is in the worker's pod and lost with it: then the next worker begins
// again.
//
// The package must not know the source of the content. Nothing may look complete before the checksum,
// the source's Verify and every decompressor have succeeded.
package fill
