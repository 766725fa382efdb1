package corpus

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"

	"sigs.k8s.io/yaml"
)

// Missing returns the referenced objects that a manifest lacks, as kind and name. The API server ignores most of
// them, and the machine waits for them or does not start.
func Missing(text []byte) ([]string, error) {
	there, named := map[string]bool{}, map[string]bool{}
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var object map[string]any
		if err := yaml.Unmarshal(document, &object); err != nil {
			return nil, fmt.Errorf("reading an object: %w", err)
		}
		kind, _ := object["kind"].(string)
		bring(there, kind, nameIn(object["metadata"]))
		refer(named, kind, object["spec"], there)
	}
	missing := slices.Sorted(maps.Keys(named))
	return slices.DeleteFunc(missing, func(reference string) bool { return there[reference] }), nil
}

func bring(there map[string]bool, kind, name string) {
	there[kind+" "+name] = true
	if kind == "DataVolume" {
		there["PersistentVolumeClaim "+name] = true
	}
}

// plainly maps a string field that names an object to the object's kind.
var plainly = map[string]string{
	"imagePullSecret": "Secret", "secretName": "Secret", "secretRef": "Secret", "certConfigMap": "ConfigMap",
	"claimName": "PersistentVolumeClaim", "networkName": "NetworkAttachmentDefinition", "storageClassName": "StorageClass",
	"serviceAccountName": "ServiceAccount", "priorityClassName": "PriorityClass", "vmiName": "VirtualMachineInstance",
	"virtualMachineSnapshotName": "VirtualMachineSnapshot",
}

// byName maps an object field with a name to the referenced object's kind, unless the field has its own kind.
var byName = map[string]string{
	"secretRef": "Secret", "networkDataSecretRef": "Secret", "secret": "Secret", "configMap": "ConfigMap", "dataVolume": "DataVolume",
	"pvc": "PersistentVolumeClaim", "snapshot": "VolumeSnapshot", "sourceRef": "DataSource", "binding": "network binding",
	"instancetype": "VirtualMachineClusterInstancetype", "preference": "VirtualMachineClusterPreference", "source": "",
}

// The DataVolumes of templates count, too.
func refer(named map[string]bool, kind string, value any, there map[string]bool) {
	switch v := value.(type) {
	case []any:
		for _, element := range v {
			refer(named, kind, element, there)
		}
	case map[string]any:
		for field, inner := range v {
			if kind == "VirtualMachine" && field == "dataVolumeTemplates" {
				bringTemplates(there, inner)
			}
			if name, is := inner.(string); is && plainly[field] != "" && name != "" {
				named[plainly[field]+" "+name] = true
			}
			noteByName(named, field, inner)
			refer(named, kind, inner, there)
		}
	}
}

func noteByName(named map[string]bool, field string, value any) {
	of, known := byName[field]
	fields, is := value.(map[string]any)
	if !known || !is {
		return
	}
	said, _ := fields["kind"].(string)
	if name, _ := fields["name"].(string); name != "" && cmp.Or(said, of) != "" {
		named[cmp.Or(said, of)+" "+name] = true
	}
}

func bringTemplates(there map[string]bool, value any) {
	templates, _ := value.([]any)
	for _, template := range templates {
		if fields, is := template.(map[string]any); is {
			bring(there, "DataVolume", nameIn(fields["metadata"]))
		}
	}
}

func nameIn(metadata any) string {
	fields, _ := metadata.(map[string]any)
	name, _ := fields["name"].(string)
	return name
}
