package vmihandler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/machine/machinetype"
	"drydock.dev/drydock/internal/rules/machine/stateclaim"
	"drydock.dev/drydock/internal/rules/migration/volumemigration"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
	"drydock.dev/drydock/internal/rules/vmi/hostdevice"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// Sources of an interface's information, as the API names them.
const (
	infoDomain = "domain"
	infoAgent  = "guest-agent"
	infoMultus = "multus-status"
)

// interfaces returns the spec's interfaces in its order, then those that only the agent reports.
func interfaces(vmi *v1.VirtualMachineInstance, g *Guest) []v1.VirtualMachineInstanceNetworkInterface {
	var list, others, reported []v1.VirtualMachineInstanceNetworkInterface
	if g.Agent != nil {
		reported = g.Agent.Interfaces
	}
	cards := cardsOf(g.Interfaces, reported)
	for i, made := range g.Interfaces {
		status := v1.VirtualMachineInstanceNetworkInterface{
			Name: made.Name, MAC: made.MAC, PodInterfaceName: made.PodInterface,
			InfoSource: infoDomain, QueueCount: int32(max(made.Queues, 1)), LinkState: string(cmp.Or(g.Links[made.Name], made.Link)),
		}
		setIPs(&status, made.IPs)
		if cards[i] >= 0 {
			card := &reported[cards[i]]
			status.InterfaceName = card.InterfaceName
			status.InfoSource = infoDomain + ", " + infoAgent
			// Behind masquerade, the guest's own address is not reachable.
			if !masqueraded(vmi, made.Name) && len(card.IPs) > 0 {
				setIPs(&status, card.IPs)
			}
		}
		if made.Multus {
			status.InfoSource += ", " + infoMultus
		}
		list = append(list, status)
	}
	for i := range reported {
		if !slices.Contains(cards, i) {
			others = append(others, reported[i])
			others[len(others)-1].InfoSource = infoAgent
		}
	}
	slices.SortFunc(others, func(a, b v1.VirtualMachineInstanceNetworkInterface) int {
		return cmp.Or(cmp.Compare(a.InterfaceName, b.InterfaceName), cmp.Compare(a.MAC, b.MAC))
	})
	return append(list, others...)
}

// Name prefixes of virtual devices that a guest creates; bonds give others their MAC address.
var (
	bonds  = []string{"bond", "team"}
	madeOf = []string{"br", "docker", "ipvlan", "macvlan", "macvtap", "ovs", "veth", "virbr", "vlan", "vxlan"}
)

// cardsOf returns for each NIC the index of its network card among the guest's interfaces, -1 for none.
//
// A card has its NIC's MAC address, unless it belongs to a bond: then it has the bond's address, and the guest agent does
// not report its own. If as many cards are in bonds as NICs have no card elsewhere, they match in the guest's order.
func cardsOf(nics []Interface, reported []v1.VirtualMachineInstanceNetworkInterface) []int {
	var cards, bonded, left []int
	for i := range reported {
		if !made(reported[i].InterfaceName) && inBond(reported, reported[i].MAC) {
			bonded = append(bonded, i)
		}
	}
	for i := range nics {
		card := cardOf(nics[i].MAC, reported, cards)
		if card < 0 || slices.Contains(bonded, card) {
			left = append(left, i)
		}
		cards = append(cards, card)
	}
	if len(bonded) == len(left) {
		for i, nic := range left {
			cards[nic] = bonded[i]
		}
	}
	return cards
}

func inBond(reported []v1.VirtualMachineInstanceNetworkInterface, mac string) bool {
	return slices.ContainsFunc(reported, func(i v1.VirtualMachineInstanceNetworkInterface) bool {
		return i.MAC == mac && hasPrefix(i.InterfaceName, bonds) && !onAnother(i.InterfaceName)
	})
}

// The guest lists the oldest first, so the first of several candidates is the card.
func cardOf(mac string, reported []v1.VirtualMachineInstanceNetworkInterface, taken []int) int {
	card := -1
	for i := range reported {
		if reported[i].MAC != mac || slices.Contains(taken, i) {
			continue
		}
		if card < 0 || made(reported[card].InterfaceName) && !made(reported[i].InterfaceName) {
			card = i
		}
	}
	return card
}

func made(name string) bool {
	return onAnother(name) || hasPrefix(name, bonds) || hasPrefix(name, madeOf)
}

// A separator is in the name of a VLAN on another device.
func onAnother(name string) bool { return strings.ContainsAny(name, ".@:") }

func hasPrefix(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

func setIPs(status *v1.VirtualMachineInstanceNetworkInterface, ips []string) {
	status.IPs, status.IP = ips, ""
	if len(ips) > 0 {
		status.IP = ips[0]
	}
}

func masqueraded(vmi *v1.VirtualMachineInstance, name string) bool {
	for i := range vmi.Spec.Domain.Devices.Interfaces {
		if iface := &vmi.Spec.Domain.Devices.Interfaces[i]; iface.Name == name {
			return iface.Masquerade != nil
		}
	}
	return false
}

// allowPodBridge is KubeVirt's annotation that lets a VMI migrate although a bridge gives the guest the pod's
// address, on any network (decision 367).
const allowPodBridge = "kubevirt.io/allow-pod-bridge-network-live-migration"

type hindrances []hindrance

type hindrance struct {
	vmistatus.Obstacle
	copied bool // the disk can be copied to another claim instead
}

// An interface's reason takes precedence over a disk's, since disks can be copied where the VM allows it (decision
// 342).
func (h hindrances) all() *vmistatus.Obstacle {
	if len(h) == 0 {
		return nil
	}
	return &vmistatus.Obstacle{Reason: h[len(h)-1].Reason, Message: "cannot migrate VMI: " + h.text()}
}

func (h hindrances) storage() *vmistatus.Obstacle {
	left := slices.DeleteFunc(slices.Clone(h), func(one hindrance) bool { return one.copied })
	if len(left) == 0 {
		return nil
	}
	return &vmistatus.Obstacle{Reason: v1.VirtualMachineInstanceReasonNotMigratable, Message: "cannot migrate VMI with its storage: " + left.text()}
}

func (h hindrances) text() string {
	messages := make([]string, 0, len(h))
	for i := range h {
		messages = append(messages, h[i].Message)
	}
	return strings.Join(messages, "; ")
}

func hindrancesOf(vmi *v1.VirtualMachineInstance, status []v1.VolumeStatus, known map[string]Volume, made []Interface) hindrances {
	var list hindrances
	add := func(reason, message string, copied bool) {
		list = append(list, hindrance{vmistatus.Obstacle{Reason: reason, Message: message}, copied})
	}
	for i := range vmi.Spec.Volumes {
		v := &vmi.Spec.Volumes[i]
		if onItsWay(v, status) {
			continue
		}
		if machine.ChangesClaim(vmi, v) {
			continue // it is copied to a claim that the target can reach
		}
		if message := migrationObstacle(&vmi.Spec, v, known); message != "" {
			add(v1.VirtualMachineInstanceReasonDisksNotMigratable, message, volumemigration.Copyable(&vmi.Spec, v) == "")
		}
	}
	if message := stateclaim.Immovable(vmi, known[stateclaim.Volume].Claim); message != "" {
		add(v1.VirtualMachineInstanceReasonNotMigratable, message, false)
	}
	for i := range vmi.Spec.Domain.Devices.Interfaces {
		if message := ofThePod(vmi, &vmi.Spec.Domain.Devices.Interfaces[i], made); message != "" {
			add(v1.VirtualMachineInstanceReasonInterfaceNotMigratable, message, false)
		}
	}
	if message := hostdevice.Immovable(&vmi.Spec); message != "" {
		add(v1.VirtualMachineInstanceReasonHostDeviceNotMigratable, message, false)
	}
	return list
}

func ofThePod(vmi *v1.VirtualMachineInstance, iface *v1.Interface, made []Interface) string {
	at := slices.IndexFunc(made, func(m Interface) bool { return m.Name == iface.Name })
	if at >= 0 && made[at].Stays != "" {
		return fmt.Sprintf("interface %s: %s", iface.Name, made[at].Stays)
	}
	if _, allowed := vmi.Annotations[allowPodBridge]; allowed || iface.Bridge == nil {
		return ""
	}
	if onPodNetwork(vmi, iface.Name) {
		return fmt.Sprintf("interface %s gives the guest the pod's own address (bridge on the pod network)", iface.Name)
	}
	if at >= 0 && len(made[at].IPs) > 0 {
		return fmt.Sprintf("interface %s gives the guest the address %s, which its network has given to the pod (IPAM)", iface.Name, made[at].IPs[0])
	}
	return ""
}

// onItsWay reports whether the volume is wanted and not plugged yet. Its effect on migrations is written with its
// phase.
func onItsWay(v *v1.Volume, status []v1.VolumeStatus) bool {
	return machine.Hotpluggable(v) && !slices.ContainsFunc(status, func(s v1.VolumeStatus) bool {
		return s.Name == v.Name && hotplug.InUse(s.Phase)
	})
}

func migrationObstacle(spec *v1.VirtualMachineInstanceSpec, v *v1.Volume, known map[string]Volume) string {
	claim := volumeclaim.Name(&v.VolumeSource)
	switch {
	case v.HostDisk != nil && (v.HostDisk.Shared == nil || !*v.HostDisk.Shared):
		return fmt.Sprintf("volume %s is a file on this node (hostDisk without shared)", v.Name)
	case claim == "":
		return ""
	}
	info := known[v.Name].Claim
	switch {
	case info == nil:
		return fmt.Sprintf("PVC %s of volume %s is not known yet", claim, v.Name)
	case v.Ephemeral != nil && slices.Contains(info.AccessModes, corev1.ReadOnlyMany):
		// The guest's changes are in its pod and are sent along (machine.Mirrors).
	case machine.OnlyRead(spec, v, info.AccessModes):
	case !slices.Contains(info.AccessModes, corev1.ReadWriteMany):
		return fmt.Sprintf("PVC %s is not shared, live migration requires that all PVCs must be shared (using ReadWriteMany access mode)", claim)
	}
	return ""
}

// Claims maps the launcher pod's volumes, even read-only ones, to their claims, and stateclaim.Volume to the claim of
// the VM's state.
func Claims(vmi *v1.VirtualMachineInstance) map[string]string {
	claims := map[string]string{}
	for i := range vmi.Spec.Volumes {
		v := &vmi.Spec.Volumes[i]
		if machine.Hotpluggable(v) {
			continue
		}
		if claim := volumeclaim.Name(&v.VolumeSource); claim != "" {
			claims[v.Name] = claim
		}
	}
	if claim := stateclaim.ClaimName(vmi); claim != "" {
		claims[stateclaim.Volume] = claim
	}
	return claims
}

func onPodNetwork(vmi *v1.VirtualMachineInstance, name string) bool {
	for i := range vmi.Spec.Networks {
		if n := &vmi.Spec.Networks[i]; n.Name == name {
			return n.Pod != nil
		}
	}
	return false
}

// A disk that the guest only reads needs no copy: the target has its own.
func migrationMethod(vmi *v1.VirtualMachineInstance, status []v1.VolumeStatus, known map[string]Volume) v1.VirtualMachineInstanceMigrationMethod {
	for i := range vmi.Spec.Volumes {
		v := &vmi.Spec.Volumes[i]
		ofThePod := volumeclaim.Disk(&v.VolumeSource) == "" && !machine.ReadOnly(&vmi.Spec, v.Name) && !machine.IsShare(&vmi.Spec, v.Name)
		if !onItsWay(v, status) && (machine.ChangesClaim(vmi, v) || ofThePod || migrationObstacle(&vmi.Spec, v, known) != "") {
			return v1.BlockMigration
		}
	}
	return v1.LiveMigration
}

// MachineType returns the VMI's machine type; standard is the cluster's, and running QEMU's. A guest of the newest type
// migrates to another QEMU, whose newest type may differ, as what it runs as.
func MachineType(vmi *v1.VirtualMachineInstance, standard, running string) string {
	if m := vmi.Spec.Domain.Machine; m != nil && m.Type != "" {
		standard = m.Type
	}
	if standard == machinetype.Newest && machinetype.Known(running) {
		return running
	}
	return standard
}
