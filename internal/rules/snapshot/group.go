package snapshot

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"drydock.dev/drydock/internal/rules/object/condition"
)

// Annotations of a claim's copy in the content, if its disk is snapshotted together with the others: the
// VolumeGroupSnapshotClass, and the VolumeSnapshot's UID once known. Only virt-controller writes a content's spec.
const (
	GroupClassAnnotation = "drydock.dev/volume-group-snapshot-class"
	MemberAnnotation     = "drydock.dev/volume-snapshot-uid"
)

// Unheld is the token of a VolumeGroupSnapshot of a running guest without a hold (decision 432). No hold has it.
const Unheld = "unheld"

// Group is an observed VolumeGroupSnapshot. Driver, Taken and Cuts come from an object that only the driver writes.
type Group struct {
	// See VolumeSnapshot.
	Owner, Token string
	// Ends means that it is being deleted.
	Ends   bool
	Driver string
	// Taken is the time of all volumes' snapshots.
	Taken *metav1.Time
	Error string
	Cuts  []GroupCut
}

// GroupCut is a volume's snapshot in a group.
type GroupCut struct {
	// Handle is the driver's name of the volume.
	Handle string
	// Both are the VolumeSnapshot's.
	Name, UID string
}

// Volume is a CSI volume.
type Volume struct{ Driver, Handle string }

// NewGroup is a VolumeGroupSnapshot to create from the claims with Label; Owner is its content.
type NewGroup struct {
	Name, Class, Label, Token string
	Owner                     metav1.OwnerReference
	// Labels are the group's own.
	Labels map[string]string
}

// Labels are claims to add a label to (Put) and to remove it from (Take).
type Labels struct {
	Key       string
	Put, Take []string
}

// GroupName names the VolumeGroupSnapshot.
func GroupName(s *snapshotv1.VirtualMachineSnapshot) string { return "vmsnapshot-" + string(s.UID) }

// GroupLabel returns the label by which VolumeGroupSnapshots select the disks of a VM.
func GroupLabel(vm *v1.VirtualMachine) string { return "drydock.dev/disk-of-" + string(vm.UID) }

// ByGroup reports whether one VolumeGroupSnapshot snapshots all disks of the content.
func ByGroup(content *snapshotv1.VirtualMachineSnapshotContent) bool {
	return groupClassOf(content) != ""
}

// Named reports whether a content has the names of its VolumeSnapshots. A group's are known once it was taken.
func Named(content *snapshotv1.VirtualMachineSnapshotContent) bool {
	return !slices.ContainsFunc(content.Spec.VolumeBackups, func(b snapshotv1.VolumeBackup) bool { return b.VolumeSnapshotName == nil })
}

// IsOf reports whether a VolumeSnapshot is the content's for a volume (nil for one that it lacks), and not another of
// its name.
func IsOf(content *snapshotv1.VirtualMachineSnapshotContent, backup *snapshotv1.VolumeBackup, v VolumeSnapshot) bool {
	if backup == nil {
		return false
	}
	if uid := backup.PersistentVolumeClaim.Annotations[MemberAnnotation]; uid != "" {
		return v.UID == uid
	}
	return v.Owner == string(content.UID)
}

func groupClassOf(content *snapshotv1.VirtualMachineSnapshotContent) string {
	if len(content.Spec.VolumeBackups) == 0 {
		return ""
	}
	return content.Spec.VolumeBackups[0].PersistentVolumeClaim.Annotations[GroupClassAnnotation]
}

// groupClass returns the VolumeGroupSnapshotClass for the included disks, "" for one disk, several drivers, or no
// class.
func groupClass(disks []Disk, classes []Class) string {
	driver, claims := "", map[string]bool{}
	for _, disk := range disks {
		switch {
		case disk.Class == "":
			continue
		case driver != "" && disk.Driver != driver:
			return ""
		}
		driver, claims[disk.Claim.Name] = disk.Driver, true
	}
	if len(claims) < 2 {
		return ""
	}
	return choose(classes, driver)
}

// SeeksMembers reports whether the VolumeSnapshots of a group must be read. A held guest is released first.
func SeeksMembers(o Observed, g *Group) bool {
	d := decision{o: o}
	return g.Taken != nil && !Named(o.Content) && (g.Token == "" || g.Token == Unheld || d.cutTaken())
}

// labels returns the changes after which exactly the content's claims have the group's label.
func (d *decision) labels(content *snapshotv1.VirtualMachineSnapshotContent) *Labels {
	if !ByGroup(content) {
		return nil
	}
	l := &Labels{Key: GroupLabel(d.o.VM)}
	var claims []string
	for i := range content.Spec.VolumeBackups {
		name := content.Spec.VolumeBackups[i].PersistentVolumeClaim.Name
		if !slices.Contains(d.o.Labeled, name) && !slices.Contains(l.Put, name) {
			l.Put = append(l.Put, name)
		}
		claims = append(claims, name)
	}
	for _, name := range d.o.Labeled {
		if !slices.Contains(claims, name) {
			l.Take = append(l.Take, name)
		}
	}
	if len(l.Put)+len(l.Take) == 0 {
		return nil
	}
	return l
}

// free reports whether a group may be snapshotted without a hold: without an agent that can freeze the guest's file
// systems, a stop would gain nothing. A paused guest is held, so that it stays paused.
func free(vmi *v1.VirtualMachineInstance) bool {
	return !condition.IsTrue(vmi.Status.Conditions, v1.VirtualMachineInstanceAgentConnected) &&
		!condition.IsTrue(vmi.Status.Conditions, v1.VirtualMachineInstancePaused)
}

// membersIn is how long the names of a group's members may delay the VM's unlocking. Usually the cluster's
// snapshot-controller creates them right after the group was taken.
const membersIn = 3 * time.Second

// membersComeSoon reports whether the content's write waits for the names, which saves another write. No held guest
// waits. The driver's clock may differ.
func (d *decision) membersComeSoon(s state) bool {
	if d.o.Group == nil || d.cutTaken() || Named(d.o.Content) || s.named != nil || s.token != "" && s.token != Unheld {
		return false
	}
	since := d.o.Now.Sub(s.taken.Time)
	return since >= 0 && since < membersIn
}

func summarizeGroup(o Observed) state {
	s, g := state{ready: Named(o.Content)}, o.Group
	taken := (&decision{o: o}).cutTaken()
	switch {
	case g == nil && !taken && !s.ready:
		s.group = &NewGroup{Name: GroupName(o.Snapshot), Class: groupClassOf(o.Content), Owner: *metav1.NewControllerRef(o.Content, contentKind), Labels: sourceLabels(o.Content)}
	case g == nil && (!taken || !s.ready):
		s.lost = fmt.Sprintf("the VolumeGroupSnapshot %s was deleted before it was ready to use", GroupName(o.Snapshot))
		return s
	case g == nil:
		s.taken = o.Content.Status.CreationTime
	case g.Ends:
		s.lost = fmt.Sprintf("the VolumeGroupSnapshot %s is being deleted", GroupName(o.Snapshot))
	case g.Owner != string(o.Content.UID):
		s.foreign = fmt.Sprintf("the VolumeGroupSnapshot %s was made by somebody else", GroupName(o.Snapshot))
	default:
		s.made, s.token, s.taken = 1, g.Token, g.Taken
		if g.Error != "" {
			s.trouble = fmt.Sprintf("the storage driver has not finished the VolumeGroupSnapshot %s: %s", GroupName(o.Snapshot), g.Error)
		}
		if g.Taken != nil && !s.ready {
			s.strange = strangers(o)
			s.named = withNames(o.Content, handles(o), g.Cuts)
		}
	}
	if s.ready {
		s.members(o)
	}
	return s
}

func (s *state) members(o Observed) {
	for i := range o.Content.Spec.VolumeBackups {
		backup := &o.Content.Spec.VolumeBackups[i]
		v, exists := o.VolumeSnapshots[*backup.VolumeSnapshotName]
		if !exists || !IsOf(o.Content, backup, v) {
			s.lost = fmt.Sprintf("the VolumeSnapshot %s was deleted before it was ready to use", *backup.VolumeSnapshotName)
			return
		}
		if v.Taken == nil {
			// Drivers that can't list snapshots only report the group's time.
			v.Taken = s.taken
		}
		s.addVolumeSnapshot(*backup.VolumeSnapshotName, v)
	}
}

// handles returns the driver's names of the content's volumes; "" if unknown or another driver's.
func handles(o Observed) []string {
	var out []string
	for i := range o.Content.Spec.VolumeBackups {
		volume := o.Volumes[o.Content.Spec.VolumeBackups[i].PersistentVolumeClaim.Spec.VolumeName]
		if volume.Driver != o.Group.Driver {
			volume.Handle = ""
		}
		out = append(out, volume.Handle)
	}
	return out
}

// strangers returns why a group does not have exactly the content's disks. It compares volumes, since users can change
// the claims' labels.
func strangers(o Observed) string {
	var lacks []string
	wanted := handles(o)
	for i, handle := range wanted {
		if handle == "" || !slices.ContainsFunc(o.Group.Cuts, func(c GroupCut) bool { return c.Handle == handle }) {
			lacks = append(lacks, o.Content.Spec.VolumeBackups[i].PersistentVolumeClaim.Name)
		}
	}
	others := 0
	for _, cut := range o.Group.Cuts {
		if !slices.Contains(wanted, cut.Handle) {
			others++
		}
	}
	name, key := GroupName(o.Snapshot), ""
	if o.VM != nil {
		key = " " + GroupLabel(o.VM)
	}
	switch {
	case len(lacks) > 0:
		return fmt.Sprintf("the VolumeGroupSnapshot %s does not have the volumes of the claims %s: their label%s was changed meanwhile",
			name, strings.Join(lacks, ", "), key)
	case others > 0:
		return fmt.Sprintf("the VolumeGroupSnapshot %s also has volumes that are not the VM's (%d): other claims have got the label%s meanwhile", name, others, key)
	}
	return ""
}

// withNames returns nil while a name is missing.
func withNames(content *snapshotv1.VirtualMachineSnapshotContent, handles []string, cuts []GroupCut) *snapshotv1.VirtualMachineSnapshotContent {
	out := content.DeepCopy()
	for i, handle := range handles {
		at := slices.IndexFunc(cuts, func(c GroupCut) bool { return c.Handle == handle && c.Name != "" && c.UID != "" })
		if at < 0 {
			return nil
		}
		backup := &out.Spec.VolumeBackups[i]
		backup.VolumeSnapshotName = new(cuts[at].Name)
		backup.PersistentVolumeClaim.Annotations = with(backup.PersistentVolumeClaim.Annotations, MemberAnnotation, cuts[at].UID)
	}
	return out
}
