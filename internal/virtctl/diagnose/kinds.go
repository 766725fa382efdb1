package diagnose

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"drydock.dev/drydock/internal/contracts/layout"
)

// place is where the objects of a kind are.
type place int

const (
	// inCluster objects have no namespace.
	inCluster place = iota
	// atHome objects are in the namespace of Drydock's components.
	atHome
	// withTenants objects are in the namespaces of VMs.
	withTenants
)

// kind is a kind of objects, and which of them are collected.
type kind struct {
	group, version, resource string
	place                    place
	// namespace is a fixed one.
	namespace string
	labels    string
	// wants reports whether an object belongs to the diagnosis; nil means all.
	wants func(s *scope, o object) bool
}

func (k *kind) name() string {
	if k.group == "" {
		return k.resource
	}
	return k.resource + "." + k.group
}

func (k *kind) gvr() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: k.group, Version: k.version, Resource: k.resource}
}

// folder is the group's folder in an archive.
func (k *kind) folder() string {
	if k.group == "" {
		return "core"
	}
	return k.group
}

const (
	kubeVirtGroup = "kubevirt.io"
	cdiGroup      = "cdi.kubevirt.io"
	snapshotGroup = "snapshot.kubevirt.io"
	typeGroup     = "instancetype.kubevirt.io"
	csiGroup      = "snapshot.storage.k8s.io"
	// component selects the pods and workloads of Drydock, and the pods of guests.
	component = "kubevirt.io"
)

// The KubeVirt object is read first: it is in the namespace of the components.
var kubeVirts = kind{group: kubeVirtGroup, version: "v1", resource: "kubevirts", place: inCluster}

// ofTheInstallation are the kinds about Drydock and the cluster.
var ofTheInstallation = []kind{
	{group: "apps", version: "v1", resource: "deployments", place: atHome, labels: component},
	{group: "apps", version: "v1", resource: "daemonsets", place: atHome, labels: component},
	{group: "coordination.k8s.io", version: "v1", resource: "leases", place: atHome},
	{group: "coordination.k8s.io", version: "v1", resource: "leases", namespace: "kube-node-lease"},
	{group: "apiregistration.k8s.io", version: "v1", resource: "apiservices", place: inCluster, wants: func(_ *scope, o object) bool { return strings.HasSuffix(o.Text("spec", "group"), kubeVirtGroup) }},
	{version: "v1", resource: "nodes", place: inCluster},
	{group: cdiGroup, version: "v1beta1", resource: "cdis", place: inCluster},
	{group: cdiGroup, version: "v1beta1", resource: "storageprofiles", place: inCluster},
	{group: "storage.k8s.io", version: "v1", resource: "storageclasses", place: inCluster},
	{group: csiGroup, version: "v1", resource: "volumesnapshotclasses", place: inCluster},
	{group: "migrations.kubevirt.io", version: "v1alpha1", resource: "migrationpolicies", place: inCluster},
}

// ofTenants have values that nobody but their tenant may see, and which texts may quote.
var ofTenants = []kind{
	{group: kubeVirtGroup, version: "v1", resource: "virtualmachines", place: withTenants, wants: (*scope).isMachine},
	{group: kubeVirtGroup, version: "v1", resource: "virtualmachineinstances", place: withTenants, wants: (*scope).isMachine},
	{group: kubeVirtGroup, version: "v1", resource: "virtualmachineinstancereplicasets", place: withTenants, wants: (*scope).everything},
	{group: kubeVirtGroup, version: "v1", resource: "virtualmachineinstancemigrations", place: withTenants, wants: names("spec", "vmiName")},
	{group: cdiGroup, version: "v1beta1", resource: "datavolumes", place: withTenants, wants: (*scope).isClaim},
	{group: cdiGroup, version: "v1beta1", resource: "datasources", place: withTenants, wants: (*scope).everything},
	{group: snapshotGroup, version: "v1beta1", resource: "virtualmachinesnapshots", place: withTenants, wants: names("spec", "source", "name")},
	{group: snapshotGroup, version: "v1beta1", resource: "virtualmachinesnapshotcontents", place: withTenants, wants: names("spec", "source", "virtualMachine", "metadata", "name")},
	{group: snapshotGroup, version: "v1beta1", resource: "virtualmachinerestores", place: withTenants, wants: names("spec", "target", "name")},
	{group: "clone.kubevirt.io", version: "v1beta1", resource: "virtualmachineclones", place: withTenants, wants: (*scope).isClone},
	{group: typeGroup, version: "v1beta1", resource: "virtualmachineinstancetypes", place: withTenants, wants: (*scope).isType},
	{group: typeGroup, version: "v1beta1", resource: "virtualmachinepreferences", place: withTenants, wants: (*scope).isType},
	{group: typeGroup, version: "v1beta1", resource: "virtualmachineclusterinstancetypes", place: inCluster, wants: (*scope).isType},
	{group: typeGroup, version: "v1beta1", resource: "virtualmachineclusterpreferences", place: inCluster, wants: (*scope).isType},
	{version: "v1", resource: "persistentvolumeclaims", place: withTenants, wants: (*scope).isClaim},
	{group: "apps", version: "v1", resource: "controllerrevisions", place: withTenants, wants: (*scope).isOwned},
}

// ofKubernetes are Kubernetes's objects of machines. Events come last: they are about all the others.
var ofKubernetes = []kind{
	{version: "v1", resource: "persistentvolumes", place: inCluster, wants: (*scope).isVolume},
	{group: csiGroup, version: "v1", resource: "volumesnapshots", place: withTenants, wants: (*scope).isVolumeSnapshot},
	{version: "v1", resource: "pods", place: atHome, labels: component},
	{version: "v1", resource: "pods", place: withTenants, labels: component, wants: (*scope).isPod},
	{group: "policy", version: "v1", resource: "poddisruptionbudgets", place: withTenants, wants: (*scope).isOwned},
	{version: "v1", resource: "namespaces", place: inCluster, wants: func(s *scope, o object) bool { return s.namespaces[o.GetName()] }},
	{version: "v1", resource: "resourcequotas", place: withTenants, wants: (*scope).isInNamespace},
	{version: "v1", resource: "limitranges", place: withTenants, wants: (*scope).isInNamespace},
	{group: "k8s.cni.cncf.io", version: "v1", resource: "network-attachment-definitions", place: withTenants, wants: (*scope).isInNamespace},
	{version: "v1", resource: "events", place: withTenants, wants: (*scope).isEvent},
	{version: "v1", resource: "events", place: atHome, wants: (*scope).isEvent},
	{version: "v1", resource: "events", namespace: "default", wants: (*scope).isEvent}, // those of nodes
}

// logged are the containers whose logs have only words of Drydock's programs and of QEMU, by the value of the label kubevirt.io.
// A guest's console and a user's maintenance are not among them.
var logged = map[string][]string{
	"virt-api":           {"virt-api"},
	"virt-controller":    {"virt-controller"},
	"virt-handler":       {"virt-handler"},
	"virt-operator":      {"virt-operator"},
	layout.LauncherApp:   {layout.ComputeContainer},
	layout.AttachmentApp: {layout.AttachmentContainer},
	"virt-importer":      {"importer"},
}
