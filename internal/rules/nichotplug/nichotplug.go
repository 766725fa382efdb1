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
// guest with it; the next start has the whole specification. While a VMI migrates nothing of this is decided, and
// both nodes go by the NICs that status.interfaces shows in the guest.
//
// network-status and the pod's annotations are anybody's to write who may write pods in the namespace. They are
// bounded, and nothing is believed of them but that an interface of a name is there on a network. At worst their
// author's own guest is migrated, or is not.
//
// The package is pure: it must not import a client, and knows nothing of QMP.
package nichotplug

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/launcherpod"
	"drydock.dev/drydock/internal/rules/migrationrequired"
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

// madeWith are the interfaces that a pod was to have when it was made.
func madeWith(pod *corev1.Pod) Attached {
	var list []launcherpod.Attachment
	if !read(pod, launcherpod.MadeWithAnnotation, &list) || len(list) > maxAttachments {
		return nil
	}
	made := Attached{}
	for _, a := range list {
		made[a.Interface] = a.Namespace + "/" + a.Name
	}
	return made
}

// read reads an annotation of a pod, and reports whether it could.
func read(pod *corev1.Pod, annotation string, into any) bool {
	text := pod.Annotations[annotation]
	return text != "" && len(text) <= MaxAnnotation && json.Unmarshal([]byte(text), into) == nil
}

// lists reports whether the interface is there, on the very network.
func (has Attached) lists(a launcherpod.Attachment) bool {
	on, there := has[a.Interface]
	return there && on == a.Namespace+"/"+a.Name
}

// Networks returns what the annotation launcherpod.NetworksAnnotation of the VMI's pod is to be, "" for none, and
// whether it is something else. What others have asked of the pod of a VMI without such networks is left alone.
func Networks(vmi *v1.VirtualMachineInstance, pod *corev1.Pod) (value string, changes bool) {
	value, is := launcherpod.Networks(vmi), pod.Annotations[launcherpod.NetworksAnnotation]
	return value, value != is && (len(launcherpod.Attachments(vmi)) > 0 || asked(pod))
}

// asked reports whether virt-controller has asked for an interface of the pod.
func asked(pod *corev1.Pod) bool {
	var list []launcherpod.Attachment
	return read(pod, launcherpod.NetworksAnnotation, &list) &&
		slices.ContainsFunc(list, func(a launcherpod.Attachment) bool { return ours.MatchString(a.Interface) })
}

// Needs are the interfaces that the VMI's pod is to get or to lose by another pod, unless somebody attaches or
// detaches them in place. Of one that the guest has nothing is needed, whatever the pod's annotations say.
func Needs(vmi *v1.VirtualMachineInstance, pod *corev1.Pod) []migrationrequired.Need {
	has := ReadStatus(pod)
	var made Attached
	var needs []migrationrequired.Need
	known := map[string]bool{}
	for i := range vmi.Spec.Networks {
		n := &vmi.Spec.Networks[i]
		iface := interfaceOf(vmi, n.Name)
		if n.Multus == nil || iface == nil {
			continue
		}
		a := launcherpod.AttachmentOf(vmi.Namespace, n)
		known[a.Interface] = true
		switch absent := iface.State == v1.InterfaceStateAbsent; {
		case absent && has[a.Interface] != "":
			needs = append(needs, migrationrequired.Need{What: fmt.Sprintf("interface %s is to be unplugged from the launcher pod", n.Name)})
		case absent, has.lists(a), InGuest(vmi, n.Name):
		default:
			if made == nil {
				made = madeWith(pod)
			}
			needs = append(needs, plug(pod, n.Name, iface.SRIOV != nil, made.lists(a)))
		}
	}
	return append(needs, surplus(has, known)...)
}

// plug is the need of an interface that the pod lacks.
func plug(pod *corev1.Pod, name string, device, made bool) migrationrequired.Need {
	need := migrationrequired.Need{What: fmt.Sprintf("interface %s is to be plugged", name), AtOnce: device}
	if made {
		need.Futile = fmt.Sprintf("the launcher pod %s was made with it, and Multus has not said that it is there; "+
			"look at the pod's annotation %s, and whether Multus runs on node %s", pod.Name, StatusAnnotation, pod.Spec.NodeName)
	}
	return need
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

func interfaceOf(vmi *v1.VirtualMachineInstance, name string) *v1.Interface {
	for i := range vmi.Spec.Domain.Devices.Interfaces {
		if iface := &vmi.Spec.Domain.Devices.Interfaces[i]; iface.Name == name {
			return iface
		}
	}
	return nil
}
