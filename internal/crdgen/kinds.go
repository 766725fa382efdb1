package crdgen

import (
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/vm/vmcontroller"
)

// kind has facts that the API module's Go types lack.
type kind struct {
	goPackage    string
	group        string
	version      string
	kind         string
	plural       string
	shortNames   []string
	subresources *apiextensionsv1.CustomResourceSubresources
	columns      []apiextensionsv1.CustomResourceColumnDefinition
	selectable   []string
	// opaque fields have no schema, since their content was validated elsewhere: a schema takes the API server's memory,
	// and must fit kubectl apply's annotation.
	opaque [][]string
	// older is a deprecated version with the same fields. Objects are stored, and validated by webhooks and policies, in
	// the other version.
	older string
	// fractions lets a quantity be a number with a fraction (cpu: 2.2). No schema can express "a number or a string", so
	// any value is accepted: this is only for kinds whose objects a webhook always decodes into Go's types before they
	// are stored (failurePolicy Fail).
	fractions bool
	cluster   bool
}

const (
	corePackage     = "kubevirt.io/api/core/v1"
	typePackage     = "kubevirt.io/api/instancetype/v1beta1"
	policyPackage   = "kubevirt.io/api/migrations/v1alpha1"
	snapshotPackage = "kubevirt.io/api/snapshot/v1beta1"
	clonePackage    = "kubevirt.io/api/clone/v1beta1"
	cdiPackage      = "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// KubeVirt's users know the names and columns.
func kinds() []kind {
	return slices.Concat(machineKinds(), snapshotKinds(), instancetypeKinds())
}

func instancetypeKinds() []kind {
	return []kind{
		instancetypes("VirtualMachineInstancetype", "virtualmachineinstancetypes", kind{
			shortNames: []string{"vminstancetype", "vminstancetypes", "vmf", "vmfs"},
		}),
		instancetypes("VirtualMachineClusterInstancetype", "virtualmachineclusterinstancetypes", kind{
			cluster: true, shortNames: []string{"vmclusterinstancetype", "vmclusterinstancetypes", "vmcf", "vmcfs"},
		}),
		instancetypes("VirtualMachinePreference", "virtualmachinepreferences", kind{
			shortNames: []string{"vmpref", "vmprefs", "vmp", "vmps"},
		}),
		instancetypes("VirtualMachineClusterPreference", "virtualmachineclusterpreferences", kind{
			cluster: true, shortNames: []string{"vmcp", "vmcps"},
		}),
	}
}

func machineKinds() []kind {
	return []kind{
		withFractions("VirtualMachine", "virtualmachines", kind{
			shortNames:   []string{"vm", "vms"},
			subresources: status(),
			columns: []apiextensionsv1.CustomResourceColumnDefinition{
				age(),
				text("Status", ".status.printableStatus", "Human readable status"),
				condition("Ready", "Ready", 0),
				said("Node", vmcontroller.ConditionNode, "The node that the guest runs on"),
				said("IP", vmcontroller.ConditionAddress, "The address of the guest's first interface"),
				said("Guest-OS", vmcontroller.ConditionGuestOS, "What the guest agent calls the guest's system"),
				wide(text("Image", ".spec.template.spec.volumes[*].containerDisk.image", "The image of the first container disk")),
			},
			selectable: []string{".status.printableStatus"},
		}),
		withFractions("VirtualMachineInstance", "virtualmachineinstances", kind{
			shortNames: []string{"vmi", "vmis"},
			columns: []apiextensionsv1.CustomResourceColumnDefinition{
				age(),
				text("Phase", ".status.phase", ""),
				text("IP", ".status.interfaces[0].ipAddress", ""),
				text("NodeName", ".status.nodeName", ""),
				condition("Ready", "Ready", 0),
				condition("Live-Migratable", "LiveMigratable", 1),
				condition("Paused", "Paused", 1),
			},
			selectable: []string{".status.nodeName", ".status.phase"},
		}),
		withFractions("VirtualMachineInstanceReplicaSet", "virtualmachineinstancereplicasets", kind{
			shortNames:   []string{"vmirs", "vmirss"},
			subresources: statusAndScale(),
			columns: []apiextensionsv1.CustomResourceColumnDefinition{
				number("Desired", ".spec.replicas", "Number of desired VirtualMachineInstances"),
				number("Current", ".status.replicas", "Number of managed and not final or deleted VirtualMachineInstances"),
				number("Ready", ".status.readyReplicas", "Number of managed VirtualMachineInstances which are ready to receive traffic"),
				age(),
			},
		}),
		core("VirtualMachineInstanceMigration", "virtualmachineinstancemigrations", kind{
			shortNames:   []string{"vmim", "vmims"},
			subresources: status(),
			columns: []apiextensionsv1.CustomResourceColumnDefinition{
				text("Phase", ".status.phase", "The current phase of VM instance migration"),
				text("VMI", ".spec.vmiName", "The name of the VMI to perform the migration on"),
				age(),
			},
			selectable: []string{".spec.vmiName"},
		}),
		policies("MigrationPolicy", "migrationpolicies", kind{cluster: true, subresources: status()}),
		core("KubeVirt", "kubevirts", kind{
			shortNames:   []string{"kv", "kvs"},
			subresources: status(),
			columns: []apiextensionsv1.CustomResourceColumnDefinition{
				age(),
				text("Phase", ".status.phase", ""),
			},
		}),
	}
}

func snapshotKinds() []kind {
	return []kind{
		snapshots("VirtualMachineSnapshot", "virtualmachinesnapshots", kind{
			shortNames:   []string{"vmsnapshot", "vmsnapshots"},
			subresources: status(),
			columns: []apiextensionsv1.CustomResourceColumnDefinition{
				text("SourceKind", ".spec.source.kind", ""),
				text("SourceName", ".spec.source.name", ""),
				text("Phase", ".status.phase", ""),
				boolean("ReadyToUse", ".status.readyToUse"),
				date("CreationTime", ".status.creationTime"),
				text("Error", ".status.error.message", ""),
			},
		}),
		snapshots("VirtualMachineSnapshotContent", "virtualmachinesnapshotcontents", kind{
			shortNames: []string{"vmsnapshotcontent", "vmsnapshotcontents"},
			// Only virt-controller writes a content, with a VM that was admitted.
			opaque:       [][]string{{"spec", "source", "virtualMachine"}},
			subresources: status(),
			columns: []apiextensionsv1.CustomResourceColumnDefinition{
				boolean("ReadyToUse", ".status.readyToUse"),
				date("CreationTime", ".status.creationTime"),
				text("Error", ".status.error.message", ""),
			},
		}),
		snapshots("VirtualMachineRestore", "virtualmachinerestores", kind{
			shortNames:   []string{"vmrestore", "vmrestores"},
			subresources: status(),
			columns: []apiextensionsv1.CustomResourceColumnDefinition{
				text("TargetKind", ".spec.target.kind", ""),
				text("TargetName", ".spec.target.name", ""),
				boolean("Complete", ".status.complete"),
				date("RestoreTime", ".status.restoreTime"),
				wide(text("Error", ".status.conditions[?(@.type=='Failure')].message", "Why it has failed")),
			},
		}),
		{
			goPackage: clonePackage, group: "clone.kubevirt.io", version: "v1beta1", older: "v1alpha1", kind: "VirtualMachineClone", plural: "virtualmachineclones",
			shortNames:   []string{"vmclone", "vmclones"},
			subresources: status(),
			columns: []apiextensionsv1.CustomResourceColumnDefinition{
				text("Phase", ".status.phase", ""),
				text("SourceVirtualMachine", ".spec.source.name", ""),
				text("TargetVirtualMachine", ".status.targetName", ""),
				wide(text("Message", ".status.conditions[?(@.type=='Progressing')].message", "What is done or waited for, or why it has failed")),
			},
		},
	}
}

// Drydock serves them if CDI is not installed.
func cdiKinds() []kind {
	return []kind{
		cdi("DataVolume", "datavolumes", kind{
			shortNames:   []string{"dv", "dvs"},
			subresources: status(),
			columns: []apiextensionsv1.CustomResourceColumnDefinition{
				text("Phase", ".status.phase", "The phase the data volume is in"),
				text("Progress", ".status.progress", "Transfer progress in percentage if known, N/A otherwise"),
				number("Restarts", ".status.restartCount", "The number of times the transfer has been restarted."),
				age(),
			},
		}),
		cdi("DataSource", "datasources", kind{shortNames: []string{"das"}}),
		cdi("CDI", "cdis", kind{
			cluster: true, shortNames: []string{"cdi", "cdis"}, subresources: status(),
			columns: []apiextensionsv1.CustomResourceColumnDefinition{age(), text("Phase", ".status.phase", "")},
		}),
		cdi("CDIConfig", "cdiconfigs", kind{cluster: true, subresources: status()}),
		cdi("StorageProfile", "storageprofiles", kind{cluster: true, subresources: status()}),
	}
}

func cdi(name, plural string, k kind) kind {
	k.goPackage, k.group, k.version = cdiPackage, "cdi.kubevirt.io", "v1beta1"
	k.kind, k.plural = name, plural
	return k
}

func policies(name, plural string, k kind) kind {
	k.goPackage, k.group, k.version = policyPackage, "migrations.kubevirt.io", "v1alpha1"
	k.kind, k.plural = name, plural
	return k
}

func snapshots(name, plural string, k kind) kind {
	k.goPackage, k.group, k.version, k.older = snapshotPackage, "snapshot.kubevirt.io", "v1beta1", "v1alpha1"
	k.kind, k.plural = name, plural
	return k
}

func instancetypes(name, plural string, k kind) kind {
	k.goPackage, k.group, k.version = typePackage, "instancetype.kubevirt.io", "v1beta1"
	k.kind, k.plural = name, plural
	return k
}

func core(name, plural string, k kind) kind {
	k.goPackage, k.group, k.version, k.older = corePackage, "kubevirt.io", "v1", "v1alpha3"
	k.kind, k.plural = name, plural
	return k
}

// Users write quantities of guests in these kinds.
func withFractions(name, plural string, k kind) kind {
	k.fractions = true
	return core(name, plural, k)
}

func status() *apiextensionsv1.CustomResourceSubresources {
	return &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
}

func statusAndScale() *apiextensionsv1.CustomResourceSubresources {
	selector := ".status.labelSelector"
	s := status()
	s.Scale = &apiextensionsv1.CustomResourceSubresourceScale{
		SpecReplicasPath:   ".spec.replicas",
		StatusReplicasPath: ".status.replicas",
		LabelSelectorPath:  &selector,
	}
	return s
}

func age() apiextensionsv1.CustomResourceColumnDefinition {
	return apiextensionsv1.CustomResourceColumnDefinition{
		Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp",
	}
}

func date(name, path string) apiextensionsv1.CustomResourceColumnDefinition {
	return apiextensionsv1.CustomResourceColumnDefinition{Name: name, Type: "date", JSONPath: path}
}

func boolean(name, path string) apiextensionsv1.CustomResourceColumnDefinition {
	return apiextensionsv1.CustomResourceColumnDefinition{Name: name, Type: "boolean", JSONPath: path}
}

func text(name, path, description string) apiextensionsv1.CustomResourceColumnDefinition {
	return apiextensionsv1.CustomResourceColumnDefinition{
		Name: name, Type: "string", JSONPath: path, Description: description,
	}
}

func number(name, path, description string) apiextensionsv1.CustomResourceColumnDefinition {
	return apiextensionsv1.CustomResourceColumnDefinition{
		Name: name, Type: "integer", JSONPath: path, Description: description,
	}
}

// Priority 1 is for wide output only.
func condition(name, conditionType string, priority int32) apiextensionsv1.CustomResourceColumnDefinition {
	return apiextensionsv1.CustomResourceColumnDefinition{
		Name: name, Type: "string", Priority: priority,
		JSONPath: ".status.conditions[?(@.type=='" + conditionType + "')].status",
	}
}

func said(name string, conditionType v1.VirtualMachineConditionType, description string) apiextensionsv1.CustomResourceColumnDefinition {
	return wide(text(name, ".status.conditions[?(@.type=='"+string(conditionType)+"')].message", description))
}

func wide(column apiextensionsv1.CustomResourceColumnDefinition) apiextensionsv1.CustomResourceColumnDefinition {
	column.Priority = 1
	return column
}
