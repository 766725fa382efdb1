package create

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

const importFlag = "volume-import"

type importer struct {
	// required and optional are its parameters in addition to those of every type.
	required, optional []string
	source             func(values map[string]string) *cdiv1.DataVolumeSource
	// isDataSource means that src is a DataSource, which refers to the source.
	isDataSource bool
}

var importers = map[string]importer{
	"ds": {
		required: []string{"src"}, optional: []string{"size"}, isDataSource: true,
		source: func(map[string]string) *cdiv1.DataVolumeSource { return nil },
	},
	"blank": {
		required: []string{"size"},
		source: func(map[string]string) *cdiv1.DataVolumeSource {
			return &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}}
		},
	},
	"http": {
		required: []string{"url", "size"},
		optional: []string{"certconfigmap", "secretref"},
		source: func(values map[string]string) *cdiv1.DataVolumeSource {
			return &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{
				URL: values["url"], CertConfigMap: values["certconfigmap"], SecretRef: values["secretref"],
			}}
		},
	},
	"registry": {
		required: []string{"url", "size"},
		optional: []string{"certconfigmap", "pullmethod", "secretref"},
		source: func(values map[string]string) *cdiv1.DataVolumeSource {
			method := cdiv1.RegistryPullMethod(values["pullmethod"])
			return &cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{
				URL: given(values["url"]), PullMethod: given(method),
				CertConfigMap: given(values["certconfigmap"]), SecretRef: given(values["secretref"]),
			}}
		},
	},
	"pvc": {
		required: []string{"src"},
		optional: []string{"size"},
		source: func(values map[string]string) *cdiv1.DataVolumeSource {
			namespace, name := splitSource(values["src"])
			return &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: namespace, Name: name}}
		},
	},
	"snapshot": {
		required: []string{"src"},
		optional: []string{"size"},
		source: func(values map[string]string) *cdiv1.DataVolumeSource {
			namespace, name := splitSource(values["src"])
			return &cdiv1.DataVolumeSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: namespace, Name: name}}
		},
	},
}

// otherTypes are the types of KubeVirt's virtctl that Drydock does not support, with an alternative.
var otherTypes = map[string]string{
	"gcs":     "give the object's URL with type:http",
	"imageio": "export the disk and give its URL with type:http, or upload it with 'virtctl image-upload'",
	"s3":      "give a signed URL of the object with type:http",
	"vddk":    "convert the disk with virt-v2v and upload it with 'virtctl image-upload'",
}

// given returns nil for an unset value.
func given[T ~string](value T) *T {
	if value == "" {
		return nil
	}
	return &value
}

// splitSource parses [NAMESPACE/]NAME; the default is the machine's namespace.
func splitSource(text string) (namespace, name string) {
	if namespace, name, found := strings.Cut(text, "/"); found {
		return namespace, name
	}
	return "", text
}

// The disk is created and deleted with the machine. position is in its default name.
func parseImport(machine, text string, position int) (disk, error) {
	values, err := pairs(importFlag, text)
	if err != nil {
		return disk{}, err
	}
	kind, known := importers[values["type"]]
	if instead := otherTypes[values["type"]]; instead != "" {
		return disk{}, fmt.Errorf("--%s: type:%s: not supported by Drydock: %s", importFlag, values["type"], instead)
	}
	if !known {
		return disk{}, fmt.Errorf("--%s: the parameter type must be one of blank, ds, http, pvc, registry, snapshot, not %q", importFlag, values["type"])
	}
	allowed := slices.Concat([]string{"type"}, kind.required, kind.optional, []string{"name", "bootorder"})
	if err := checkKeys(importFlag, values, allowed, kind.required); err != nil {
		return disk{}, err
	}
	d, err := newDisk(importFlag, values, fmt.Sprintf("%s-import-%d", machine, position), v1.VolumeSource{})
	if err != nil {
		return disk{}, err
	}
	d.volume.DataVolume = &v1.DataVolumeSource{Name: d.volume.Name}
	d.template = &v1.DataVolumeTemplateSpec{Spec: cdiv1.DataVolumeSpec{
		Source:  kind.source(values),
		Storage: &cdiv1.StorageSpec{},
	}}
	d.template.Name = d.volume.Name
	if name := values["src"]; name != "" {
		namespace, name := splitSource(name)
		if kind.isDataSource {
			d.template.Spec.SourceRef = &cdiv1.DataVolumeSourceRef{Kind: "DataSource", Namespace: given(namespace), Name: name}
		}
		for _, part := range []string{namespace, name} {
			if problems := validation.IsDNS1123Subdomain(part); part != "" && len(problems) > 0 {
				return disk{}, fmt.Errorf("--%s: src must be [NAMESPACE/]NAME, not %q: %s", importFlag, values["src"], problems[0])
			}
		}
	}
	if text := values["size"]; text != "" {
		size, err := resource.ParseQuantity(text)
		if err != nil || size.Sign() <= 0 {
			return disk{}, fmt.Errorf("--%s: size must be a quantity greater than zero, such as 10Gi, not %q", importFlag, text)
		}
		d.template.Spec.Storage.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: size}
	}
	return d, nil
}
