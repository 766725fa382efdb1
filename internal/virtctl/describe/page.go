package describe

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
	"drydock.dev/drydock/internal/virtctl/env"
	"drydock.dev/drydock/internal/virtctl/obstacle"
	"drydock.dev/drydock/internal/virtctl/pending"
)

// Bounds of one page.
const (
	maxRows      = 20
	maxNews      = 10
	maxSnapshots = 1000 // that are read
)

// facts are all that the page says. vm or vmi is nil if there is none.
type facts struct {
	vm         *v1.VirtualMachine
	vmi        *v1.VirtualMachineInstance
	migrations []v1.VirtualMachineInstanceMigration
	snapshots  []snapshotv1.VirtualMachineSnapshot
	news       []news
	missing    []string
	now        time.Time
}

// news is a change that somebody has reported.
type news struct {
	at   time.Time
	text string
}

func newest(list []news) []news {
	slices.SortStableFunc(list, func(a, b news) int { return b.at.Compare(a.at) })
	return list[:min(len(list), maxNews)]
}

// page returns the text for a terminal.
func (f *facts) page() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s\n\n", env.Plain(f.title()))
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range []struct{ name, says string }{
		{"Runs", f.place()}, {"Is", f.machine()}, {"Guest", f.guest()}, {"Run strategy", f.strategy()}, {"Waits for", f.waits()}, {"Migration", f.migration()},
	} {
		if row.says != "" {
			fmt.Fprintf(table, "%s\t%s\n", row.name, env.Plain(row.says))
		}
	}
	_ = table.Flush() // into a strings.Builder
	section(&text, "Changes that have not reached the guest", f.pending())
	section(&text, "Disks", f.disks())
	section(&text, "Interfaces", f.interfaces())
	section(&text, "Snapshots", f.snapshotRows())
	section(&text, "What changed last", f.last())
	if len(f.missing) > 0 {
		fmt.Fprintf(&text, "\nYou may not read the machine's %s.\n", strings.Join(f.missing, ", "))
	}
	return text.String()
}

// section writes rows, whose cells are separated by tabs.
func section(text *strings.Builder, title string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(text, "\n%s\n", title)
	table := tabwriter.NewWriter(text, 0, 0, 2, ' ', 0)
	for i, row := range rows {
		if i == maxRows {
			fmt.Fprintf(table, "  … and %d more\n", len(rows)-maxRows)
			break
		}
		for j, cell := range row {
			row[j] = env.Plain(cell)
		}
		fmt.Fprintf(table, "  %s\n", strings.Join(row, "\t"))
	}
	_ = table.Flush() // into a strings.Builder
}

func (f *facts) age(at time.Time) string { return duration.HumanDuration(max(0, f.now.Sub(at))) }

func (f *facts) made(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return ", made " + f.age(at) + " ago"
}

func (f *facts) title() string {
	if f.vm != nil {
		status := cmp.Or(string(f.vm.Status.PrintableStatus), "not seen by virt-controller yet")
		return fmt.Sprintf("VM %s/%s: %s", f.vm.Namespace, f.vm.Name, status) + f.made(f.vm.CreationTimestamp.Time)
	}
	return obstacle.Sentence(fmt.Sprintf("VMI %s/%s", f.vmi.Namespace, f.vmi.Name), string(cmp.Or(f.vmi.Status.Phase, v1.Pending)), f.vmi.Status.Reason)
}

func (f *facts) place() string {
	if f.vmi == nil {
		return "nowhere"
	}
	s := &f.vmi.Status
	if s.NodeName == "" {
		return "on no node yet"
	}
	text := "on node " + s.NodeName
	if f.vmi.IsFinal() {
		text = "no more; it was on node " + s.NodeName
	}
	for _, t := range s.PhaseTransitionTimestamps {
		if t.Phase == s.Phase {
			text += fmt.Sprintf(", %s for %s", s.Phase, f.age(t.PhaseTransitionTimestamp.Time))
		}
	}
	for _, c := range s.Conditions {
		if c.Type == layout.Accelerated && c.Status == "False" {
			text += ", emulated"
		}
	}
	return text
}

func (f *facts) spec() *v1.VirtualMachineInstanceSpec {
	switch {
	case f.vmi != nil:
		return &f.vmi.Spec
	case f.vm.Spec.Template != nil:
		return &f.vm.Spec.Template.Spec
	}
	return &v1.VirtualMachineInstanceSpec{}
}

func (f *facts) machine() string {
	var parts []string
	spec := f.spec()
	cpu := spec.Domain.CPU
	if f.vmi != nil && f.vmi.Status.CurrentCPUTopology != nil {
		t := f.vmi.Status.CurrentCPUTopology
		cpu = &v1.CPU{Sockets: t.Sockets, Cores: t.Cores, Threads: t.Threads}
	}
	if cpu != nil && max(cpu.Cores, cpu.Sockets, cpu.Threads) > 0 {
		parts = append(parts, cpus(cpu.Sockets, cpu.Cores, cpu.Threads))
	}
	if memory := spec.Domain.Memory; memory != nil && memory.Guest != nil {
		parts = append(parts, memory.Guest.String()+" of memory")
	}
	if f.vmi != nil && f.vmi.Status.Machine != nil {
		parts = append(parts, "machine type "+f.vmi.Status.Machine.Type)
	}
	if f.vm != nil {
		if t := f.vm.Spec.Instancetype; t != nil {
			parts = append(parts, "instance type "+t.Name)
		}
		if p := f.vm.Spec.Preference; p != nil {
			parts = append(parts, "preference "+p.Name)
		}
	}
	return strings.Join(parts, ", ")
}

func cpus(sockets, cores, threads uint32) string {
	number := uint64(max(1, sockets)) * uint64(max(1, cores)) * uint64(max(1, threads))
	if number == 1 {
		return "1 CPU"
	}
	return fmt.Sprintf("%d CPUs", number)
}

func (f *facts) guest() string {
	if f.vmi == nil || !f.vmi.IsRunning() {
		return ""
	}
	os := &f.vmi.Status.GuestOSInfo
	switch {
	case !slices.ContainsFunc(f.vmi.Status.Conditions, func(c v1.VirtualMachineInstanceCondition) bool {
		return c.Type == v1.VirtualMachineInstanceAgentConnected && c.Status == "True"
	}):
		return "its agent is not connected"
	case os.PrettyName == "" && os.Name == "":
		return "its agent is connected"
	}
	return strings.TrimSuffix(cmp.Or(os.PrettyName, os.Name)+", kernel "+os.KernelRelease, ", kernel ")
}

func (f *facts) strategy() string {
	if f.vm == nil {
		return ""
	}
	strategy, err := f.vm.RunStrategy()
	if err != nil {
		return err.Error()
	}
	return string(strategy)
}

func (f *facts) conditions() []obstacle.Condition {
	var list []obstacle.Condition
	if f.vmi != nil {
		for _, c := range f.vmi.Status.Conditions {
			list = append(list, obstacle.Condition{Type: string(c.Type), Status: string(c.Status), Reason: c.Reason, Message: c.Message, Since: c.LastTransitionTime.Time})
		}
	}
	if f.vm != nil {
		for _, c := range f.vm.Status.Conditions {
			known := func(other obstacle.Condition) bool { return other.Type == string(c.Type) }
			if !slices.ContainsFunc(list, known) {
				list = append(list, obstacle.Condition{Type: string(c.Type), Status: string(c.Status), Reason: c.Reason, Message: c.Message, Since: c.LastTransitionTime.Time})
			}
		}
	}
	return list
}

// rests reports whether the machine is where its owner wants it.
func (f *facts) rests() bool {
	if f.vm == nil {
		return f.vmi.IsFinal()
	}
	status := f.vm.Status.PrintableStatus
	return status == v1.VirtualMachineStatusStopped || status == v1.VirtualMachineStatusRunning
}

func (f *facts) waits() string {
	conditions := f.conditions()
	why := obstacle.Of(conditions)
	if why != nil && f.rests() && why.Type != "Failure" && (f.vmi == nil || f.vmi.IsFinal()) {
		why = nil // Ready is False of a machine that is not to run
	}
	if why == nil {
		return "nothing"
	}
	if why.Since.IsZero() {
		return why.Says()
	}
	return fmt.Sprintf("%s (for %s)", why.Says(), f.age(why.Since))
}

func (f *facts) migration() string {
	var last *v1.VirtualMachineInstanceMigration
	for i := range f.migrations {
		if m := &f.migrations[i]; last == nil || m.CreationTimestamp.After(last.CreationTimestamp.Time) {
			last = m
		}
	}
	if last == nil {
		return ""
	}
	parts := []string{last.Name, string(cmp.Or(last.Status.Phase, v1.MigrationPending))}
	if s := last.Status.MigrationState; s != nil {
		if s.SourceNode != "" && s.TargetNode != "" {
			parts = append(parts, fmt.Sprintf("from node %s to node %s", s.SourceNode, s.TargetNode))
		}
		parts = append(parts, s.FailureReason)
	}
	for _, c := range last.Status.Conditions {
		if c.Type == layout.MigrationWaiting && c.Status == "True" {
			parts = append(parts, c.Message)
		}
	}
	for _, c := range f.conditions() {
		if c.Type == layout.MigrationProgress && c.Status == "True" && !last.IsFinal() {
			parts = append(parts, c.Message)
		}
	}
	return obstacle.Sentence(parts...) + f.made(last.CreationTimestamp.Time)
}

func (f *facts) pending() [][]string {
	if f.vm == nil {
		return nil
	}
	var rows [][]string
	for _, change := range pending.Sentences(f.vm, f.vmi, f.migrations) {
		rows = append(rows, []string{change})
	}
	return rows
}

func (f *facts) disks() [][]string {
	var rows [][]string
	volumes := f.spec().Volumes
	for i := range volumes {
		v := &volumes[i]
		row := []string{v.Name, source(&v.VolumeSource)}
		if f.vmi != nil {
			for j := range f.vmi.Status.VolumeStatus {
				if s := &f.vmi.Status.VolumeStatus[j]; s.Name == v.Name {
					row = append(row, f.volumeState(s))
				}
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// source names a volume's source, without its content.
func source(s *v1.VolumeSource) string {
	if claim := volumeclaim.Name(s); claim != "" {
		switch {
		case s.DataVolume != nil:
			return "DataVolume " + claim
		case s.Ephemeral != nil:
			return "claim " + claim + ", whose changes are not kept"
		}
		return "claim " + claim
	}
	switch {
	case s.ContainerDisk != nil:
		return "image " + s.ContainerDisk.Image
	case s.EmptyDisk != nil:
		return "empty disk, " + s.EmptyDisk.Capacity.String()
	case s.HostDisk != nil:
		return "file " + s.HostDisk.Path + " of the node"
	case s.CloudInitNoCloud != nil, s.CloudInitConfigDrive != nil:
		return "cloud-init"
	case s.Sysprep != nil:
		return "sysprep"
	case s.ConfigMap != nil:
		return "ConfigMap " + s.ConfigMap.Name
	case s.Secret != nil:
		return "Secret " + s.Secret.SecretName
	case s.ServiceAccount != nil:
		return "service account " + s.ServiceAccount.ServiceAccountName
	case s.DownwardMetrics != nil:
		return "figures of the host"
	}
	return "another source"
}

func (f *facts) volumeState(s *v1.VolumeStatus) string {
	parts := []string{s.Target}
	if info := s.PersistentVolumeClaimInfo; info != nil {
		if size, known := info.Capacity["storage"]; known {
			parts = append(parts, size.String())
		}
	}
	if s.HotplugVolume != nil {
		parts = append(parts, "plugged: "+obstacle.Sentence(string(s.Phase), s.Message))
	}
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), ", ")
}

func (f *facts) interfaces() [][]string {
	spec := f.spec()
	var rows [][]string
	for i := range spec.Domain.Devices.Interfaces {
		nic := &spec.Domain.Devices.Interfaces[i]
		row := []string{nic.Name, networkOf(spec.Networks, nic.Name), nic.MacAddress}
		if f.vmi != nil {
			for j := range f.vmi.Status.Interfaces {
				if s := &f.vmi.Status.Interfaces[j]; s.Name == nic.Name {
					row = []string{nic.Name, row[1], cmp.Or(s.MAC, nic.MacAddress), addresses(s), s.LinkState}
				}
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func networkOf(networks []v1.Network, name string) string {
	for i := range networks {
		if n := &networks[i]; n.Name == name {
			switch {
			case n.Multus != nil:
				return "network " + n.Multus.NetworkName
			case n.Pod != nil:
				return "the pods' network"
			}
		}
	}
	return "an unknown network"
}

func addresses(s *v1.VirtualMachineInstanceNetworkInterface) string {
	if len(s.IPs) > 0 {
		return strings.Join(s.IPs[:min(len(s.IPs), maxRows)], ", ")
	}
	return cmp.Or(s.IP, "no address known")
}

func (f *facts) snapshotRows() [][]string {
	slices.SortFunc(f.snapshots, func(a, b snapshotv1.VirtualMachineSnapshot) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	var rows [][]string
	for i := range f.snapshots {
		s := &f.snapshots[i]
		state := "not begun"
		if s.Status != nil {
			state = string(s.Status.Phase)
			if s.Status.Error != nil && s.Status.Error.Message != nil {
				state = obstacle.Sentence(state, *s.Status.Error.Message)
			}
		}
		rows = append(rows, []string{s.Name, state, f.age(s.CreationTimestamp.Time) + " ago"})
	}
	return rows
}

// last returns events and conditions, the newest first.
func (f *facts) last() [][]string {
	all := slices.Clone(f.news)
	for _, c := range f.conditions() {
		if !c.Since.IsZero() {
			all = append(all, news{c.Since, obstacle.Sentence("condition "+c.Type+" is "+c.Status, c.Says())})
		}
	}
	var rows [][]string
	for _, n := range newest(all) {
		rows = append(rows, []string{f.age(n.at) + " ago", n.text})
	}
	return rows
}
