// Package instancetype decides what an instance type and a preference mean for a VM.
//
// It owns: what a VM refers to (reference.go) and what of it is inferred from a volume (infer.go); which types and
// preferences are well-formed (check.go); the VM that results (Expand), and which fields of a VM conflict with its type;
// and the revisions by which a VM keeps its shape while its type changes (revision.go). It is pure: it must not import a
// client, and must not judge what the expanded VM means.
//
//	              the VM does not set a field    the VM sets it
//	type          the type's value               refused by the field's path
//	preference    the preference's value         the VM's value
//
// The type comes first: what it sets, the preference leaves alone. A VM that is stored is never expanded, unless the
// KubeVirt object's instancetype.referencePolicy says so: its VMI is.
package instancetype
