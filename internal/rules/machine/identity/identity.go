// Package identity is the table of the parts of a guest's identity, and of the effect of each operation on its VM on
// them: they are kept or renewed. docs/identity.md is generated from it.
//
// Code that makes a VM from another one's manifest calls Of for each part of the manifest and has no rule of its own.
// The package must not import a client.
package identity

// Part is a property by which a guest, or a system outside it, identifies it.
type Part string

// The parts.
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
	CloudInstance Part = "cloud-init instance-id, NoCloud"
	DriveInstance Part = "cloud-init instance-id, ConfigDrive"
	Hostname      Part = "hostname by DHCP and cloud-init"
	UEFIVariables Part = "UEFI variables"
	KeptVariables Part = "UEFI variables, `efi.persistent`"
	TPMState      Part = "TPM state"
	KeptTPMState  Part = "TPM state, `tpm.persistent`"
)

// Verb is an operation on a VM.
type Verb int

// The operations, in the order of the table's columns.
const (
	// Restart covers stop and start, and a guest that is started on another node.
	Restart Verb = iota
	LiveMigration
	Upgrade
	RestoreInPlace
	// RestoreToNew creates a second VM while the first may still run.
	RestoreToNew
	// Clone creates a second VM that must not be mistaken for the first.
	Clone
	verbs
)

var titles = [verbs]string{"restart", "live migration", "upgrade of Drydock", "restore in place", "restore to a new VM", "clone"}

// Rule is the effect on a part.
type Rule string

// The rules. None means that there is no such case.
const (
	None  Rule = "–"
	Keep  Rule = "keep"
	Renew Rule = "renew"
)

// Answer is a rule with a qualification.
type Answer struct {
	Rule Rule
	// How follows the rule in the table.
	How string
}

type row struct {
	part    Part
	from    string
	answers [verbs]Answer
}

var (
	none  = Answer{None, ""}
	keep  = Answer{Keep, ""}
	renew = Answer{Renew, ""}
	// theSnapshots means that the snapshot's value counts, whatever the VM's value is now.
	theSnapshots = Answer{Keep, ": the snapshot's"}
)

const (
	templateSource = "the template"
	stateClaim     = "a claim of the VM's own"
)

// table is in the order of a reader's interest.
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
	{CloudInstance, "firmware UUID", [verbs]Answer{keep, keep, keep, {Keep, " with the UUID"}, {Renew, " with the UUID"}, {Renew, " with the UUID"}}},
	{DriveInstance, "name and namespace", [verbs]Answer{keep, keep, keep, keep, {Renew, " with the name"}, {Renew, " with the name"}}},
	{Hostname, "`hostname`, else the name", [verbs]Answer{keep, keep, keep, keep, {Renew, " with the name"}, {Renew, " with the name"}}},
	{UEFIVariables, "made at each start", [verbs]Answer{renew, keep, {Keep, " while it runs"}, renew, renew, renew}},
	{KeptVariables, stateClaim, [verbs]Answer{keep, keep, keep, theSnapshots, keep, renew}},
	{TPMState, "made at each start", [verbs]Answer{renew, keep, {Keep, " while it runs"}, renew, renew, renew}},
	{KeptTPMState, stateClaim, [verbs]Answer{keep, keep, keep, theSnapshots, {Keep, ": its disks may be sealed to it"}, {Renew, ": machines that are made of one must not have the same keys"}}},
}

// KeepsState reports whether the operation keeps the claim of a VM's state, with everything on it.
func KeepsState(verb Verb) bool {
	return Of(KeptVariables, verb).Rule == Keep && Of(KeptTPMState, verb).Rule == Keep
}

// Of returns the effect of an operation on a part, None for an unknown part.
func Of(part Part, verb Verb) Answer {
	for _, r := range table {
		if r.part == part {
			return r.answers[verb]
		}
	}
	return none
}
