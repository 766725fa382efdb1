// Package identity is the table of what a guest is known by, and of what happens to each part of it
// when something happens to its VM: it is kept, or made anew. docs/identity.md has the same table,
// generated from this one.
//
// It owns the answers. Whoever makes a VM of another one's manifest asks Of for each part that the
// manifest holds, and has no rule of its own. It is pure: it must not import a client.
package identity

// Part is one thing that a guest, or somebody beside it, knows it by.
type Part string

// The parts of a guest's identity.
const (
	FirmwareUUID  Part = "firmware UUID"
	Serial        Part = "system serial"
	Chassis       Part = "chassis"
	MachineType   Part = "machine type"
	TemplateMAC   Part = "MAC address in the template"
	MasqueradeMAC Part = "MAC address otherwise, masquerade"
	BridgeMAC     Part = "MAC address otherwise, bridge"
	DiskSerial    Part = "disk serial"
	SCSIDeviceID  Part = "SCSI device id"
	PCIAddress    Part = "PCI address"
	CloudInstance Part = "cloud-init instance-id"
	Hostname      Part = "hostname by DHCP and cloud-init"
	UEFIVariables Part = "UEFI variables"
	KeptVariables Part = "UEFI variables, `efi.persistent`"
	TPMState      Part = "TPM state"
	KeptTPMState  Part = "TPM state, `tpm.persistent`"
)

// Verb is what happens to a VM.
type Verb int

// The verbs, in the order of the table's columns.
const (
	// Restart is also stop and start, and a guest that comes back on another node.
	Restart Verb = iota
	LiveMigration
	Upgrade
	// RestoreInPlace gives a VM back what it was when the snapshot was taken.
	RestoreInPlace
	// RestoreToNew makes a second VM, while the first may still run.
	RestoreToNew
	// Clone makes a second VM that is never taken for the first.
	Clone
	verbs
)

// titles are the verbs as the columns of the table.
var titles = [verbs]string{"restart", "live migration", "upgrade of Drydock", "restore in place", "restore to a new VM", "clone"}

// Rule is what becomes of a part.
type Rule string

// The rules. None stands where there is no such case.
const (
	None  Rule = "–"
	Keep  Rule = "keep"
	Renew Rule = "renew"
)

// Answer is a rule, with what qualifies it for a reader.
type Answer struct {
	Rule Rule
	// How follows the rule in the table.
	How string
}

// row is one part with where it comes from and an answer for each verb.
type row struct {
	part    Part
	from    string
	answers [verbs]Answer
}

var (
	none  = Answer{None, ""}
	keep  = Answer{Keep, ""}
	renew = Answer{Renew, ""}
	// theSnapshots is kept as the snapshot has it, whatever the VM has had since.
	theSnapshots = Answer{Keep, ": the snapshot's"}
)

const (
	templateSource = "the template"
	stateClaim     = "a claim of the VM's own"
)

// table is ordered as a reader looks for things.
var table = []row{
	{FirmwareUUID, templateSource, [verbs]Answer{keep, keep, keep, theSnapshots, {Renew, ", unless the restore keeps it"}, renew}},
	{Serial, templateSource, [verbs]Answer{keep, keep, keep, theSnapshots, {Keep, ": the owner chose it"}, {Renew, ", unless the clone names one"}}},
	{Chassis, templateSource, [verbs]Answer{keep, keep, keep, theSnapshots, {Keep, ": the owner chose it"}, keep}},
	{MachineType, templateSource, [verbs]Answer{keep, keep, keep, theSnapshots, keep, keep}},
	{TemplateMAC, templateSource, [verbs]Answer{keep, keep, keep, theSnapshots, {Renew, ": an address must be unique on a network"}, {Renew, ", unless the clone names one"}}},
	{MasqueradeMAC, "firmware UUID and interface name", [verbs]Answer{keep, keep, keep, {Keep, " with the UUID"}, {Renew, " with the UUID"}, {Renew, " with the UUID"}}},
	{BridgeMAC, "the pod's interface", [verbs]Answer{{Renew, ": a new pod"}, none, keep, renew, renew, renew}},
	{DiskSerial, "the disk's `serial`; hotplugged: the volume's name", [verbs]Answer{keep, keep, keep, theSnapshots, keep, keep}},
	{SCSIDeviceID, "the volume's name", [verbs]Answer{keep, keep, keep, keep, keep, keep}},
	{PCIAddress, "the order in the spec, or `pciAddress`", [verbs]Answer{keep, keep, keep, {Keep, ": the snapshot's order"}, keep, keep}},
	{CloudInstance, "name and namespace", [verbs]Answer{keep, keep, keep, keep, {Renew, " with the name"}, {Renew, " with the name"}}},
	{Hostname, "`hostname`, else the name", [verbs]Answer{keep, keep, keep, keep, {Renew, " with the name"}, {Renew, " with the name"}}},
	{UEFIVariables, "made at each start", [verbs]Answer{renew, keep, {Keep, " while it runs"}, renew, renew, renew}},
	{KeptVariables, stateClaim, [verbs]Answer{keep, keep, keep, theSnapshots, keep, renew}},
	{TPMState, "made at each start", [verbs]Answer{renew, keep, {Keep, " while it runs"}, renew, renew, renew}},
	{KeptTPMState, stateClaim, [verbs]Answer{keep, keep, keep, theSnapshots, {Keep, ": its disks may be sealed to it"}, {Renew, ": machines that are made of one must not have the same keys"}}},
}

// KeepsState reports whether the claim of a VM's state stays what it is when the verb happens to its VM. Everything
// that is kept on it goes the same way.
func KeepsState(verb Verb) bool {
	return Of(KeptVariables, verb).Rule == Keep && Of(KeptTPMState, verb).Rule == Keep
}

// Of returns what becomes of a part when the verb happens to its VM; None for a part that the table lacks.
func Of(part Part, verb Verb) Answer {
	for _, r := range table {
		if r.part == part {
			return r.answers[verb]
		}
	}
	return none
}
