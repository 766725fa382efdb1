// Package nichotplug decides how a running guest gets or loses interfaces: the networks of its launcher pod, the
// changes that require another pod, and the NICs in QEMU. It must not import a client or know QMP.
//
//	VM's template ──> VMI's spec ──> pod's annotation networks ──> attacher in place, if there is one ──┐
//	                                        └─> MigrationRequired ──> migration: a pod that has all ────┤
//	                                                                                                    v
//	                        status.interfaces <── NIC in QEMU <── bridge and tap <── interface in the pod
//
// A wanted interface is in one of these states, derived from facts alone, so that a restarted component continues:
//
//	state                                known from                       next step by
//	only in the template                 VM, VMI's spec                   virt-controller (package rollout)
//	in the VMI's spec, not in the pod's  VMI's spec, pod's annotation     virt-controller (Networks)
//	in the pod's annotation              network-status of the pod        Multus, an attacher, or a migration (Needs)
//	in the pod                           the pod's network namespace      virt-handler: bridge, tap, netdev_add, device_add
//	in the guest                         QEMU's list of devices           virt-handler: status.interfaces
//
// An interface whose network (networkName) changes stays on the old one until the guest has migrated to a pod with the
// new one. An unwanted interface (state: absent, or removed from the template) leaves the guest first: device_del, the
// guest releases it, netdev_del, tap and bridge are removed. A migration stops all other decisions, and both nodes use
// the NICs in status.interfaces.
//
// A device of the node (SR-IOV) needs another pod: the kubelet assigns devices only when it creates one. The device is in
// the pod when network-status names it, too. The guest releases it before a migration, and gets the new pod's device
// afterwards, or its own again.
//
// Users who may write pods in the namespace can write their annotations. These are bounded, and say only which network an
// interface is on, and which of the pod's own devices it is (package sriov). At worst they cause or prevent a migration of
// the author's guest.
package nichotplug

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/migration/migrationrequired"
	"drydock.dev/drydock/internal/rules/network/sriov"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
)

// StatusAnnotation is Multus' or an attacher's report of a pod's attachments.
const StatusAnnotation = "k8s.v1.cni.cncf.io/network-status"

// Limits of a pod's annotations.
const (
	MaxAnnotation  = 64 << 10
	maxAttachments = 256
)

// ours matches secondary interfaces in a launcher pod, madeLink virt-handler's links for them.
var ours = regexp.MustCompile(`^pod[0-9a-f]{11}$`)

var madeLink = regexp.MustCompile(`^(k6t-|tap)[0-9a-f]{11}$`)

// networkName matches a network's name that is safe in a message.
var networkName = regexp.MustCompile(`^[a-z0-9.-]{1,63}/[a-z0-9.-]{1,253}$`)

// Attached maps the reported interfaces of a pod to their networks, "namespace/name".
type Attached map[string]string

// ReadStatus reads StatusAnnotation. An invalid annotation is empty.
func ReadStatus(pod *corev1.Pod) Attached {
	var list []struct{ Name, Interface string }
	if !read(pod, StatusAnnotation, &list) || len(list) > maxAttachments {
		return nil
	}
	has := Attached{}
	for _, a := range list {
		if ours.MatchString(a.Interface) {
			has[a.Interface] = a.Name
		}
	}
	return has
}

// InPod returns the interfaces both reported and requested: an attacher may remove others.
func InPod(pod *corev1.Pod) Attached {
	has, is := ReadStatus(pod), asked(pod)
	maps.DeleteFunc(has, func(name, on string) bool {
		a, there := is[name]
		return !there || path(a) != on
	})
	return has
}

// Devices maps a pod's interfaces to PCI addresses.
type Devices map[string]string

// ReadDevices reads the devices in StatusAnnotation, each for one interface only.
func ReadDevices(pod *corev1.Pod) Devices {
	var list []struct {
		Interface string
		Info      struct {
			Type string
			PCI  struct {
				Address string `json:"pci-address"`
			}
		} `json:"device-info"`
	}
	if !read(pod, StatusAnnotation, &list) || len(list) > maxAttachments {
		return nil
	}
	devices, taken := Devices{}, map[string]bool{}
	for _, a := range list {
		address := a.Info.PCI.Address
		if a.Info.Type == "pci" && ours.MatchString(a.Interface) && sriov.IsAddress(address) && !taken[address] && devices[a.Interface] == "" {
			devices[a.Interface], taken[address] = address, true
		}
	}
	return devices
}

// Among returns the devices that a container was given.
func (d Devices) Among(given map[string]bool) Devices {
	out := Devices{}
	for name, address := range d {
		if given[address] {
			out[name] = address
		}
	}
	return out
}

func madeWith(pod *corev1.Pod) Attached {
	var list []launcherpod.Attachment
	if !read(pod, launcherpod.MadeWithAnnotation, &list) || len(list) > maxAttachments {
		return nil
	}
	made := Attached{}
	for _, a := range list {
		made[a.Interface] = path(a)
	}
	return made
}

func read(pod *corev1.Pod, annotation string, into any) bool {
	text := pod.Annotations[annotation]
	return text != "" && len(text) <= MaxAnnotation && json.Unmarshal([]byte(text), into) == nil
}

// KeptAnnotations returns the annotations that virt-handler reads.
func KeptAnnotations(pod *corev1.Pod) map[string]string {
	var kept map[string]string
	for _, name := range []string{StatusAnnotation, launcherpod.NetworksAnnotation} {
		if text := pod.Annotations[name]; text != "" && len(text) <= MaxAnnotation {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[name] = text
		}
	}
	return kept
}

func (has Attached) lists(a launcherpod.Attachment) bool {
	on, there := has[a.Interface]
	return there && on == path(a)
}

func path(a launcherpod.Attachment) string { return a.Namespace + "/" + a.Name }

// Networks returns launcherpod.NetworksAnnotation's new value, "" for none, and whether it changes. For a VMI without
// networks it keeps others' requests. An interface keeps its network in this pod: an attacher would remove it while the
// guest uses it (decision 392).
func Networks(vmi *v1.VirtualMachineInstance, pod *corev1.Pod) (value string, changes bool) {
	list, was, is := append(launcherpod.Attachments(vmi), bindings(pod)...), asked(pod), pod.Annotations[launcherpod.NetworksAnnotation]
	if len(list) == 0 {
		value = launcherpod.Networks(vmi)
		return value, value != is && len(was) > 0
	}
	used := map[string]bool{}
	for i := range vmi.Status.Interfaces {
		name := vmi.Status.Interfaces[i].Name
		used[layout.SecondaryInterface(name)] = InGuest(vmi, name)
	}
	has := ReadStatus(pod)
	for i, a := range list {
		// The pod's interface may be in the guest before the status shows it.
		if before, there := was[a.Interface]; there && (used[a.Interface] || has[a.Interface] != "") && !has.lists(a) {
			list[i] = before
		}
	}
	value = launcherpod.Encode(list)
	return value, value != is
}

// bindings returns the binding plugins, which stay as long as the pod.
func bindings(pod *corev1.Pod) []launcherpod.Attachment {
	var list []launcherpod.Attachment
	if !read(pod, launcherpod.MadeWithAnnotation, &list) || len(list) > maxAttachments {
		return nil
	}
	return slices.DeleteFunc(list, func(a launcherpod.Attachment) bool { return a.Args == nil || a.Interface != "" })
}

// asked returns virt-controller's requests by interface.
func asked(pod *corev1.Pod) map[string]launcherpod.Attachment {
	var list []launcherpod.Attachment
	if !read(pod, launcherpod.NetworksAnnotation, &list) || len(list) > maxAttachments {
		return nil
	}
	was := map[string]launcherpod.Attachment{}
	for _, a := range list {
		if ours.MatchString(a.Interface) {
			was[a.Interface] = a
		}
	}
	return was
}

// Needs returns the interfaces for which the VMI needs another pod, unless they are attached or detached in place. An
// interface in the guest needs one only if the pod reports it on another network. All needs are futile while the guest
// holds an unwanted interface, since it can't migrate then (decision 392).
func Needs(vmi *v1.VirtualMachineInstance, pod *corev1.Pod) []migrationrequired.Need {
	has, made, devices := ReadStatus(pod), madeWith(pod), ReadDevices(pod)
	var needs []migrationrequired.Need
	known := map[string]bool{}
	for i := range vmi.Spec.Networks {
		n := &vmi.Spec.Networks[i]
		iface := launcherpod.InterfaceOf(vmi, n.Name)
		if n.Multus == nil || iface == nil {
			continue
		}
		a := launcherpod.AttachmentOf(vmi.Namespace, n)
		known[a.Interface] = true
		switch absent := iface.State == v1.InterfaceStateAbsent; {
		case absent && has[a.Interface] != "":
			needs = append(needs, migrationrequired.Need{What: fmt.Sprintf("interface %s is to be unplugged from the launcher pod", n.Name)})
		case absent, has.lists(a) && (iface.SRIOV == nil || devices[a.Interface] != ""):
		case InGuest(vmi, n.Name):
			if on := cmp.Or(has[a.Interface], made[a.Interface]); on != "" && on != path(a) {
				needs = append(needs, move(pod, n.Name, on, a, made.lists(a)))
			}
		default:
			needs = append(needs, plug(pod, n.Name, iface.SRIOV != nil, made.lists(a), has.lists(a)))
		}
	}
	needs = append(needs, surplus(has, known)...)
	if kept := kept(vmi); len(kept) > 0 {
		for i := range needs {
			needs[i].Futile = fmt.Sprintf("the guest has not released %s yet, and is not migrated before", strings.Join(kept, ", "))
		}
	}
	return needs
}

func kept(vmi *v1.VirtualMachineInstance) []string {
	has := map[string]bool{}
	for i := range vmi.Status.Interfaces {
		if name := vmi.Status.Interfaces[i].Name; name != "" && InGuest(vmi, name) {
			has[name] = true
		}
	}
	return Leaving(vmi, has)
}

// plug returns the need of an interface that the pod lacks. made means that the pod was created with it, there that it
// lacks only the device.
func plug(pod *corev1.Pod, name string, device, made, there bool) migrationrequired.Need {
	need := migrationrequired.Need{What: fmt.Sprintf("interface %s is to be plugged", name), AtOnce: device}
	switch {
	case made && there:
		need.Futile = fmt.Sprintf("the launcher pod %s was made with it, and its annotation %s names no PCI device of it (device-info)", pod.Name, StatusAnnotation)
	case made:
		need.Futile = inVain(pod)
	}
	return need
}

func move(pod *corev1.Pod, name, from string, to launcherpod.Attachment, made bool) migrationrequired.Need {
	if !networkName.MatchString(from) {
		from = "another"
	}
	need := migrationrequired.Need{What: fmt.Sprintf("interface %s is to be on network %s, and its launcher pod is on %s", name, path(to), from), AtOnce: true}
	if made {
		need.Futile = inVain(pod)
	}
	return need
}

// inVain returns why another pod would not help.
func inVain(pod *corev1.Pod) string {
	return fmt.Sprintf("the launcher pod %s was made with it, and Multus has not said that it is there; "+
		"look at the pod's annotation %s, and whether Multus runs on node %s", pod.Name, StatusAnnotation, pod.Spec.NodeName)
}

func surplus(has Attached, known map[string]bool) []migrationrequired.Need {
	var names []string
	for name := range has {
		if !known[name] {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return []migrationrequired.Need{{What: "the launcher pod is to lose interfaces that the VMI does not have any more: " + strings.Join(names, ", ")}}
}

// InGuest reports whether the status, which only virt-handler writes, shows the interface in QEMU.
func InGuest(vmi *v1.VirtualMachineInstance, name string) bool {
	return slices.ContainsFunc(vmi.Status.Interfaces, func(s v1.VirtualMachineInstanceNetworkInterface) bool {
		return s.Name == name && strings.HasPrefix(s.InfoSource, InfoSourceDomain)
	})
}

// InfoSourceDomain is infoSource's prefix for an interface in QEMU.
const InfoSourceDomain = "domain"

// AttachmentOf returns an interface's attachment, nil if it is not on Multus.
func AttachmentOf(vmi *v1.VirtualMachineInstance, name string) *launcherpod.Attachment {
	n := networkOf(vmi, name)
	if n == nil {
		return nil
	}
	a := launcherpod.AttachmentOf(vmi.Namespace, n)
	return &a
}

func networkOf(vmi *v1.VirtualMachineInstance, name string) *v1.Network {
	for i := range vmi.Spec.Networks {
		if n := &vmi.Spec.Networks[i]; n.Name == name && n.Multus != nil {
			return n
		}
	}
	return nil
}
