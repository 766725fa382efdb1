package validate

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/api/validate/fieldcheck"
	"drydock.dev/drydock/internal/rules/object/quantity"
	"drydock.dev/drydock/internal/rules/object/supported"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

// DataVolume validates a DataVolume. old is nil on creation. Package defaults has noted whether its creator may read
// the source.
func DataVolume(dv, old *cdiv1.DataVolume) field.ErrorList {
	spec := field.NewPath("spec")
	if old != nil {
		var errs field.ErrorList
		if dv.DeletionTimestamp == nil {
			errs = supported.DataVolumeAnnotations(changed(dv.Annotations, old), annotations)
		}
		// The spec also says where the objects are that are deleted before the finalizer is removed.
		if !equality.Semantic.DeepEqual(dv.Spec, old.Spec) {
			errs = append(errs, field.Forbidden(spec, "Cannot update DataVolume Spec: delete it and create another"))
		}
		return errs
	}
	errs := DataVolumeSpec(&dv.Spec, spec)
	if wanted := datavolume.AllowedSource(dv); wanted != "" && dv.Annotations[datavolume.AnnCloneAllowed] != wanted {
		namespace, _, _ := datavolume.SourceOf(&dv.Spec, dv.Namespace)
		sentence := CloneForbidden(namespace)
		if owner := metav1.GetControllerOf(dv); owner != nil && owner.Kind == v1.VirtualMachineGroupVersionKind.Kind {
			sentence = fmt.Sprintf("the user who wrote this source into VirtualMachine %s may not create datavolumes/source in namespace %s any more, "+
				"which is the right to clone from there: somebody who may must write the dataVolumeTemplates entry %s again, with another label, say",
				owner.Name, namespace, dv.Name)
		}
		errs = append(errs, field.Forbidden(CloneNamespace(&dv.Spec, spec), sentence))
	}
	return append(errs, dataVolumeAnnotations(dv, annotations)...)
}

func dataVolumeAnnotations(dv *cdiv1.DataVolume, path *field.Path) field.ErrorList {
	errs := supported.DataVolumeAnnotations(dv.Annotations, path)
	sum, there := dv.Annotations[datavolume.AnnChecksum]
	if !there {
		return errs
	}
	path = path.Key(datavolume.AnnChecksum)
	if effective := datavolume.Checksum(dv); effective != sum {
		return append(errs, field.Invalid(path, sum, fmt.Sprintf("spec.source.http.checksum is %s: one of them is enough", effective)))
	}
	if dv.Spec.Source == nil || dv.Spec.Source.HTTP == nil {
		return append(errs, field.Forbidden(path, "only what comes from an HTTP server is compared with a checksum"))
	}
	return append(errs, fieldcheck.Pattern(sum, path, sums, oneOfSums)...)
}

// CloneNamespace returns the path of the source's namespace in a spec.
func CloneNamespace(spec *cdiv1.DataVolumeSpec, path *field.Path) *field.Path {
	switch {
	case spec.SourceRef != nil:
		return path.Child("sourceRef", "namespace")
	case spec.Source != nil && spec.Source.Snapshot != nil:
		return path.Child("source", "snapshot", "namespace")
	}
	return path.Child("source", "pvc", "namespace")
}

// CloneForbidden returns the message for a user who may not clone from a namespace.
func CloneForbidden(namespace string) string {
	return fmt.Sprintf("you may not create datavolumes/source in namespace %s, which is the right to clone from there", namespace)
}

var sums = regexp.MustCompile(`(?i)^(md5:[0-9a-f]{32}|sha1:[0-9a-f]{40}|sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$`)

const oneOfSums = "must be md5:, sha1:, sha256: or sha512: and the sum in hexadecimal digits"

// DataVolumeSpec validates the spec of a DataVolume, or of a VM's template for one.
func DataVolumeSpec(spec *cdiv1.DataVolumeSpec, path *field.Path) field.ErrorList {
	errs := supported.DataVolumeSpec(spec, path)
	if spec.SourceRef != nil {
		ref, at := spec.SourceRef, path.Child("sourceRef")
		if spec.Source != nil {
			errs = append(errs, field.Forbidden(at, "can't be set beside source: one of the two must be set"))
		}
		errs = append(errs, cloneNames(ptr.Deref(ref.Namespace, ""), ref.Name, at)...)
	}
	if spec.SourceRef == nil || spec.Source != nil {
		errs = append(errs, dataVolumeSource(spec.Source, path.Child("source"))...)
	}
	errs = append(errs, dataVolumeTarget(spec, path)...)
	errs = append(errs, reference(spec.ServiceAccountName, path.Child("serviceAccountName"))...)
	if spec.ContentType == cdiv1.DataVolumeArchive && (spec.Source == nil || spec.Source.HTTP == nil && spec.Source.Upload == nil) {
		errs = append(errs, field.Forbidden(path.Child("contentType"), "an archive can come from http or upload only"))
	}
	return errs
}

func dataVolumeSource(source *cdiv1.DataVolumeSource, path *field.Path) field.ErrorList {
	const sentence = "one of http, registry, upload, blank, pvc and snapshot must be set"
	if source == nil {
		return field.ErrorList{field.Required(path, sentence)}
	}
	var chosen []string
	var errs field.ErrorList
	for _, choice := range []struct {
		name  string
		set   bool
		judge func(*cdiv1.DataVolumeSource, *field.Path) field.ErrorList
	}{
		{"http", source.HTTP != nil, httpSource}, {"registry", source.Registry != nil, registrySource},
		{"upload", source.Upload != nil, nothing}, {"blank", source.Blank != nil, nothing},
		{"pvc", source.PVC != nil, func(s *cdiv1.DataVolumeSource, at *field.Path) field.ErrorList {
			return cloneNames(s.PVC.Namespace, s.PVC.Name, at)
		}},
		{"snapshot", source.Snapshot != nil, func(s *cdiv1.DataVolumeSource, at *field.Path) field.ErrorList {
			return cloneNames(s.Snapshot.Namespace, s.Snapshot.Name, at)
		}},
	} {
		if choice.set {
			chosen = append(chosen, choice.name)
			errs = append(errs, choice.judge(source, path.Child(choice.name))...)
		}
	}
	if len(chosen) == 0 && *source != (cdiv1.DataVolumeSource{}) {
		// The unsupported kind was already reported.
		return nil
	}
	return append(fieldcheck.ExactlyOne(path, chosen, sentence), errs...)
}

func nothing(*cdiv1.DataVolumeSource, *field.Path) field.ErrorList { return nil }

func cloneNames(namespace, name string, path *field.Path) field.ErrorList {
	errs := fieldcheck.RequiredName(name, path.Child("name"), "names what is to be cloned")
	if namespace != "" {
		errs = append(errs, fieldcheck.DNSLabel(namespace, path.Child("namespace"))...)
	}
	return errs
}

func httpSource(of *cdiv1.DataVolumeSource, path *field.Path) field.ErrorList {
	source := of.HTTP
	var errs field.ErrorList
	u, err := url.Parse(source.URL)
	switch {
	case source.URL == "":
		errs = append(errs, field.Required(path.Child("url"), "an address with http:// or https://"))
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		errs = append(errs, field.Invalid(path.Child("url"), source.URL, "must be an address with http:// or https:// and a host"))
	case u.User != nil:
		errs = append(errs, field.Forbidden(path.Child("url"), "a password in an address can be read by everybody who sees the DataVolume: use secretRef"))
	}
	for i, header := range source.ExtraHeaders {
		if name, _, ok := strings.Cut(header, ":"); !ok || name == "" || strings.ContainsAny(header, "\r\n") {
			errs = append(errs, field.Invalid(path.Child("extraHeaders").Index(i), header, "must be a header's name, a colon and its value"))
		}
	}
	errs = append(errs, reference(source.SecretRef, path.Child("secretRef"))...)
	errs = append(errs, reference(source.CertConfigMap, path.Child("certConfigMap"))...)
	if source.Checksum != "" {
		errs = append(errs, fieldcheck.Pattern(source.Checksum, path.Child("checksum"), sums, oneOfSums)...)
	}
	for i, name := range source.SecretExtraHeaders {
		errs = append(errs, fieldcheck.DNSSubdomain(name, path.Child("secretExtraHeaders").Index(i))...)
	}
	return errs
}

// reference validates the name of an optional object.
func reference(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return nil
	}
	return fieldcheck.DNSSubdomain(name, path)
}

func registrySource(of *cdiv1.DataVolumeSource, path *field.Path) field.ErrorList {
	source := of.Registry
	var errs field.ErrorList
	const docker = cdiv1.RegistrySchemeDocker + "://"
	switch image, ok := strings.CutPrefix(ptr.Deref(source.URL, ""), docker); {
	case ptr.Deref(source.URL, "") == "":
		errs = append(errs, field.Required(path.Child("url"), "a container image with "+docker))
	case !ok || image == "" || strings.ContainsAny(image, " \t\n"):
		errs = append(errs, field.Invalid(path.Child("url"), *source.URL, "must be "+docker+" and a container image"))
	}
	const own = "with pullMethod node the node's container runtime asks the registry in its own way"
	if datavolume.NodePull(source) && ptr.Deref(source.SecretRef, "") != "" {
		errs = append(errs, field.Forbidden(path.Child("secretRef"), own))
	}
	if datavolume.NodePull(source) && ptr.Deref(source.CertConfigMap, "") != "" {
		errs = append(errs, field.Forbidden(path.Child("certConfigMap"), own))
	}
	errs = append(errs, reference(ptr.Deref(source.SecretRef, ""), path.Child("secretRef"))...)
	return append(errs, reference(ptr.Deref(source.CertConfigMap, ""), path.Child("certConfigMap"))...)
}

func dataVolumeTarget(spec *cdiv1.DataVolumeSpec, path *field.Path) field.ErrorList {
	const sentence = "one of pvc and storage must be set"
	var errs field.ErrorList
	switch {
	case spec.PVC == nil && spec.Storage == nil:
		errs = append(errs, field.Required(path.Child("storage"), sentence))
	case spec.PVC != nil && spec.Storage != nil:
		errs = append(errs, field.Forbidden(path.Child("pvc"), "can't be set beside storage: "+sentence))
	}
	if s, at := spec.Storage, path.Child("storage"); s != nil {
		inferred := spec.SourceRef != nil || spec.Source != nil && (spec.Source.PVC != nil || spec.Source.Snapshot != nil)
		errs = append(errs, claimSize(s.Resources.Requests, inferred, at)...)
		errs = append(errs, archiveMode(spec, s.VolumeMode, at)...)
	}
	if pvc, at := spec.PVC, path.Child("pvc"); pvc != nil {
		// The claim is created from spec.pvc unchanged.
		errs = append(errs, claimSize(pvc.Resources.Requests, false, at)...)
		errs = append(errs, archiveMode(spec, pvc.VolumeMode, at)...)
		if pvc.VolumeMode != nil {
			errs = append(errs, fieldcheck.OneOf(*pvc.VolumeMode, at.Child("volumeMode"), corev1.PersistentVolumeFilesystem, corev1.PersistentVolumeBlock)...)
		}
		if len(pvc.AccessModes) == 0 {
			errs = append(errs, field.Required(at.Child("accessModes"), "a claim needs one; spec.storage takes what suits the class"))
		}
		if pvc.DataSource != nil || pvc.DataSourceRef != nil {
			errs = append(errs, field.Forbidden(at.Child("dataSource"), "what the claim is filled from is said in source"))
		}
	}
	return errs
}

func claimSize(requests corev1.ResourceList, inferred bool, path *field.Path) field.ErrorList {
	path = path.Child("resources", "requests", "storage")
	size, there := requests[corev1.ResourceStorage]
	if !there {
		if inferred {
			return nil
		}
		return field.ErrorList{field.Required(path, "the size of the disk")}
	}
	return fieldcheck.Quantity(size, path, quantity.Storage(size))
}

func archiveMode(spec *cdiv1.DataVolumeSpec, mode *corev1.PersistentVolumeMode, path *field.Path) field.ErrorList {
	if spec.ContentType == cdiv1.DataVolumeArchive && mode != nil && *mode == corev1.PersistentVolumeBlock {
		return field.ErrorList{field.Forbidden(path.Child("volumeMode"), "an archive is unpacked into a file system")}
	}
	return nil
}
