// Package nichotplug decides what becomes of the interfaces that a running guest is to get or to lose: what its
// launcher pod is to be attached to, what only another pod can bring, and which NICs QEMU is to have.
//
//	VM's template ──> VMI's spec ──> pod's annotation networks ──> attacher in place, if there is one ──┐
//	                                        └─> MigrationRequired ──> migration: a pod that has all ────┤
//	                                                                                                    v
//	                        status.interfaces <── NIC in QEMU <── bridge and tap <── interface in the pod
//
// An interface that is to be in the guest is in one of these states; each is found anew from its facts, and nobody
// keeps another record:
//
//	state                                       known from                       who brings the next one
//	asked of the template only                  VM, VMI's spec                   virt-controller (package rollout)
//	asked of the VMI, not of the pod            VMI's spec, pod's annotation     virt-controller (Networks)
//	asked of the pod                            network-status of the pod        an attacher, or a migration (Needs)
//	in the pod                                  the pod's network namespace      virt-handler: bridge, tap, netdev_add, device_add
//	in the guest                                QEMU's list of devices           virt-handler: status.interfaces
//
// One that is to be on another network (networkName), and is in the guest, stays there on the old one until a migration
// has brought the guest to a pod that has it on the new one. The guest keeps its NIC.
//
// One that is to go (state: absent, or taken out of the template) goes from the guest first: device_del, the guest
// releases it, netdev_del, tap and bridge are removed. The pod loses it by the attacher or by a migration, as above.
//
// Who writes what: the VMI's spec and the pod's annotation networks, virt-controller; network-status, Multus or an
// attacher; the condition MigrationRequired, virt-controller (package migrationrequired decides it); status.interfaces,
// virt-handler of the guest's node.
//
// What dies in the middle: virt-controller's next leader compares the same facts, and each write is that of a
// whole state. The next virt-handler finds bridge and tap in the pod, and NIC and netdev in QEMU, and does what is
// left. An attacher that dies leaves the pod as it is, and a migration follows. A pod or a node that dies takes the
// guest with it; the next start has the whole specification. While a VMI migrates nothing else is decided, and
// both nodes go by the NICs that status.interfaces shows in the guest.
//
// An interface that is a device of the node (SR-IOV) takes the same way, but for the attacher: only when a pod is made does
// the kubelet give it devices. It is in the pod when network-status names its device, too. No guest takes it to another node:
// the guest releases it before it is sent, and is given the device of the other pod when it has arrived, or its own again
// when it has not (decision 405).
//
// network-status and the pod's annotations are anybody's to write who may write pods in the namespace. They are
// bounded, and nothing is believed of them but that an interface of a name is there on a network, and which of the pod's
// own devices it is (package sriov). At worst their author's own guest is migrated, or is not.
//
// What all that comes to, whoever is late, on old views, or dies, is explored in package vmilifecycle's tests: an
// interface that nobody changes any more is where it is asked for, and a change takes one migration at most.
//
// The package is pure: it must not import a client, and knows nothing of QMP.
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
	"drydock.dev/drydock/internal/rules/launcherpod"
	"drydock.dev/drydock/internal/rules/migrationrequired"
	"drydock.dev/drydock/internal/rules/sriov"
)

// StatusAnnotation of a pod is where Multus, or an attacher, says what the pod is attached to.
const StatusAnnotation = "k8s.v1.cni.cncf.io/network-status"

// Bounds of what is read of a pod's annotations: the length of one, and how many attachments it may list.
const (
	MaxAnnotation  = 64 << 10
	maxAttachments = 256
)

// ours is what interfaces of other networks than the pods' are called in a launcher pod.
var ours = regexp.MustCompile(`^pod[0-9a-f]{11}$`)

// madeLink is what virt-handler calls the links that it makes for them.
var madeLink = regexp.MustCompile(`^(k6t-|tap)[0-9a-f]{11}$`)

// networkName is how a network is named that somebody reads of.
var networkName = regexp.MustCompile(`^[a-z0-9.-]{1,63}/[a-z0-9.-]{1,253}$`)

// Attached are the interfaces that a pod is said to have, with the network of each as "namespace/name".
type Attached map[string]string

// ReadStatus reads StatusAnnotation. What can't be read is nothing.
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

// InPod are the interfaces that a pod is said to have and, on the same networks, asked for: what is asked for no more an
// attacher may take at any moment.
func InPod(pod *corev1.Pod) Attached {
	has, is := ReadStatus(pod), asked(pod)
	maps.DeleteFunc(has, func(name, on string) bool {
		a, there := is[name]
		return !there || path(a) != on
	})
	return has
}

// Devices are the PCI addresses of devices of the node, by the names of interfaces of a pod.
type Devices map[string]string

// ReadDevices reads of StatusAnnotation which devices of the node the pod's interfaces are said to be. No device is two
// interfaces. What can't be read is nothing.
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

// Among are those of the devices that a container was given.
func (d Devices) Among(given map[string]bool) Devices {
	out := Devices{}
	for name, address := range d {
		if given[address] {
			out[name] = address
		}
	}
	return out
}

// madeWith are the interfaces that a pod was to have when it was made.
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

// read reads an annotation of a pod, and reports whether it could.
func read(pod *corev1.Pod, annotation string, into any) bool {
	text := pod.Annotations[annotation]
	return text != "" && len(text) <= MaxAnnotation && json.Unmarshal([]byte(text), into) == nil
}

// KeptAnnotations are those of a pod's annotations that virt-handler looks at, within bounds; nil for none.
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

// lists reports whether the interface is there, on the very network.
func (has Attached) lists(a launcherpod.Attachment) bool {
	on, there := has[a.Interface]
	return there && on == path(a)
}

// path is how Attached names the network of an attachment.
func path(a launcherpod.Attachment) string { return a.Namespace + "/" + a.Name }

// Networks returns what the annotation launcherpod.NetworksAnnotation of the VMI's pod is to be, "" for none, and
// whether it is something else. What others have asked of the pod of a VMI without such networks is left alone.
//
// An interface that the pod has, and that is to be on another network, stays where it is until the guest has another
// pod: an attacher would take it from under the guest (decision 400).
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
		// What the pod has may be in the guest before the VMI's status shows it.
		if before, there := was[a.Interface]; there && (used[a.Interface] || has[a.Interface] != "") && !has.lists(a) {
			list[i] = before
		}
	}
	value = launcherpod.Encode(list)
	return value, value != is
}

// bindings are the plugins of network bindings that the pod was made with. They stay: their interfaces come and go with
// the pod.
func bindings(pod *corev1.Pod) []launcherpod.Attachment {
	var list []launcherpod.Attachment
	if !read(pod, launcherpod.MadeWithAnnotation, &list) || len(list) > maxAttachments {
		return nil
	}
	return slices.DeleteFunc(list, func(a launcherpod.Attachment) bool { return a.Args == nil || a.Interface != "" })
}

// asked are the attachments that virt-controller has asked for of the pod, by their interfaces.
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

// Needs are the interfaces that the VMI's pod is to get or to lose by another pod, unless somebody attaches or
// detaches them in place. Of one that the guest has nothing is needed, unless the pod is said to have it on another
// network. As long as the guest has one that is to go it is not migrated, and all of it is futile (decision 401).
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

// kept are the interfaces that the VMI's status shows in the guest, and that are to go.
func kept(vmi *v1.VirtualMachineInstance) []string {
	has := map[string]bool{}
	for i := range vmi.Status.Interfaces {
		if name := vmi.Status.Interfaces[i].Name; name != "" && InGuest(vmi, name) {
			has[name] = true
		}
	}
	return Leaving(vmi, has)
}

// plug is the need of an interface that the pod lacks. device means that it is to be a device of the node, made that the
// pod was made with the interface, and there that it has it: without its device, if it is to be one.
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

// move is the need of an interface that the guest has, and its pod on another network than the VMI asks for.
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

// inVain is why a pod like this one has no use.
func inVain(pod *corev1.Pod) string {
	return fmt.Sprintf("the launcher pod %s was made with it, and Multus has not said that it is there; "+
		"look at the pod's annotation %s, and whether Multus runs on node %s", pod.Name, StatusAnnotation, pod.Spec.NodeName)
}

// surplus are the needs to get rid of interfaces that the VMI does not name any more.
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

// InGuest reports whether the VMI's status shows the interface in QEMU. Only virt-handler writes that.
func InGuest(vmi *v1.VirtualMachineInstance, name string) bool {
	return slices.ContainsFunc(vmi.Status.Interfaces, func(s v1.VirtualMachineInstanceNetworkInterface) bool {
		return s.Name == name && strings.HasPrefix(s.InfoSource, InfoSourceDomain)
	})
}

// InfoSourceDomain begins what status.interfaces says of an interface that QEMU has.
const InfoSourceDomain = "domain"

// AttachmentOf is what the VMI's pod is attached to for an interface, nil for one that is not on a network of Multus'.
func AttachmentOf(vmi *v1.VirtualMachineInstance, name string) *launcherpod.Attachment {
	n := networkOf(vmi, name)
	if n == nil {
		return nil
	}
	a := launcherpod.AttachmentOf(vmi.Namespace, n)
	return &a
}

// networkOf is the network of Multus' that an interface is on, nil for none.
func networkOf(vmi *v1.VirtualMachineInstance, name string) *v1.Network {
	for i := range vmi.Spec.Networks {
		if n := &vmi.Spec.Networks[i]; n.Name == name && n.Multus != nil {
			return n
		}
	}
	return nil
}
