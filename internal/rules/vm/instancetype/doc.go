// Package instancetype decides the effect of an instance type and a preference on a VM.
//
// It owns a VM's references (reference.go) and their inference from a volume (infer.go), the validation of types and
// preferences (check.go), the resulting VM and its conflicts with the type (Expand), and the revisions that keep a VM's
// type while the original changes (revision.go). It must not import a client, or validate the expanded VM.
//
//	              the VM does not set a field    the VM sets it
//	type          the type's value               refused by the field's path
//	preference    the preference's value         the VM's value
//
// The type comes first: the preference does not change its fields. A stored VM is not expanded, unless
// instancetype.referencePolicy of the KubeVirt object requires it: its VMI is.
package instancetype
