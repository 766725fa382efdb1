package pending

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
)

// The paths are parsed from the messages of conditions. A message of another version that can't be parsed is
// shown unchanged.

// waiting is a field that waits for a restart.
type waiting struct{ path, why string }

const (
	restartBegins  = "these changes take effect when the VM is restarted: "
	restartBecause = ", because "
	machineWhy     = "it can't be changed while the guest runs"
)

// readRestart parses the message of RestartRequired.
func readRestart(message string) []waiting {
	text, found := strings.CutPrefix(message, restartBegins)
	if !found {
		return []waiting{{why: message}}
	}
	var list []waiting
	var rest []string
	for sentence := range strings.SplitSeq(text, "; ") {
		paths, why, found := strings.Cut(sentence, restartBecause)
		if !found && strings.Contains(strings.ReplaceAll(paths, ", ", ""), " ") {
			rest = append(rest, sentence)
			continue
		}
		for path := range strings.SplitSeq(paths, ", ") {
			list = append(list, waiting{path, why})
		}
	}
	for i := range list {
		if list[i].why == "" {
			list[i].why = strings.Join(append([]string{machineWhy}, rest...), "; ")
		}
	}
	return list
}

type need struct {
	path, what string
	// futile means that no migration makes the change, room that the pod must be larger.
	futile, room bool
}

var clauses = []struct {
	begins *regexp.Regexp
	path   func(name string) string
}{
	{regexp.MustCompile(`^interface (\S+) is to be plugged`), interfacePath},
	{regexp.MustCompile(`^interface (\S+) is to be unplugged`), func(name string) string { return interfacePath(name) + ".state" }},
	{regexp.MustCompile(`^interface (\S+) is to be on network `), networkPath},
	{regexp.MustCompile(`^the launcher pod is to (lose) `), func(string) string { return template + ".domain.devices.interfaces" }},
}

const (
	roomBegins      = "the launcher pod is to have "
	immovableBegins = "the guest cannot be migrated: "
	futileSays      = ", which no migration brings: "
)

// readNeeds parses the message of MigrationRequired: the needs, and why the guest can't be migrated, "" if it
// can.
func readNeeds(message string) (needs []need, immovable string) {
	message, immovable, _ = strings.Cut(message, immovableBegins)
	for clause := range strings.SplitSeq(strings.TrimSuffix(message, "; "), "; ") {
		n := need{path: pathOf(clause), what: clause, futile: strings.Contains(clause, futileSays), room: strings.HasPrefix(clause, roomBegins)}
		if n.path == "" && !n.room && len(needs) > 0 {
			needs[len(needs)-1].what += "; " + clause // the previous clause contains a semicolon
			continue
		}
		needs = append(needs, n)
	}
	return needs, immovable
}

// pathOf returns the field of a clause, "" if unknown.
func pathOf(clause string) string {
	for _, c := range clauses {
		if found := c.begins.FindStringSubmatch(clause); found != nil {
			return c.path(found[1])
		}
	}
	return ""
}

// differences returns the paths of the live fields in which a VMI differs from its VM's template.
func differences(running, template *v1.VirtualMachineInstanceSpec) []string {
	var paths []string
	if sockets(running) != sockets(template) {
		paths = append(paths, socketsPath)
	}
	if to := guestMemory(template); to != nil && !equality.Semantic.DeepEqual(guestMemory(running), to) {
		paths = append(paths, memoryPath)
	}
	for i := range template.Domain.Devices.Interfaces {
		to := &template.Domain.Devices.Interfaces[i]
		at := slices.IndexFunc(running.Domain.Devices.Interfaces, func(is v1.Interface) bool { return is.Name == to.Name })
		switch {
		case at < 0:
			paths = append(paths, interfacePath(to.Name))
		case state(&running.Domain.Devices.Interfaces[at]) != state(to):
			paths = append(paths, interfacePath(to.Name)+".state")
		}
	}
	for i := range template.Networks {
		to := &template.Networks[i]
		at := slices.IndexFunc(running.Networks, func(is v1.Network) bool { return is.Name == to.Name })
		if at >= 0 && to.Multus != nil && running.Networks[at].Multus != nil && running.Networks[at].Multus.NetworkName != to.Multus.NetworkName {
			paths = append(paths, networkPath(to.Name))
		}
	}
	return paths
}

func sockets(spec *v1.VirtualMachineInstanceSpec) uint32 {
	if spec.Domain.CPU == nil {
		return 1
	}
	return max(spec.Domain.CPU.Sockets, 1)
}

// guestMemory returns the guest's memory in a spec, nil if unset.
func guestMemory(spec *v1.VirtualMachineInstanceSpec) *resource.Quantity {
	if spec.Domain.Memory == nil {
		return nil
	}
	return spec.Domain.Memory.Guest
}

// state returns the link state of an interface; up is the default.
func state(iface *v1.Interface) v1.InterfaceState {
	return cmp.Or(iface.State, v1.InterfaceStateLinkUp)
}
