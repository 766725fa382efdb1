package vmispec

import (
	"encoding/base64"
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/api/validate/fieldcheck"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/hotplug/hotplugspec"
	"drydock.dev/drydock/internal/rules/object/quantity"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
)

const (
	// maxInline bounds, in bytes, cloud-init data in the object itself, which every watcher of it receives. A Secret
	// has no such bound.
	maxInline = 2048
)

// ValidateStorage validates volumes and disks, and that each has its counterpart.
func ValidateStorage(spec *v1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	errs := volumes(spec.Volumes, path.Child("volumes"))
	errs = append(errs, disks(spec, path.Child("domain", "devices", "disks"))...)
	errs = append(errs, shares(spec, path.Child("domain", "devices", "filesystems"))...)
	return append(errs, hotplugspec.Judge(spec, path)...)
}

// volumeRules are in the order in which errors name the kinds if a volume has several.
var volumeRules = []struct {
	name  string
	of    func(*v1.VolumeSource) bool
	judge func(*v1.VolumeSource, *field.Path) field.ErrorList
}{
	{"containerDisk", func(s *v1.VolumeSource) bool { return s.ContainerDisk != nil }, containerDisk},
	{"persistentVolumeClaim", func(s *v1.VolumeSource) bool { return s.PersistentVolumeClaim != nil },
		func(s *v1.VolumeSource, at *field.Path) field.ErrorList {
			return fieldcheck.RequiredName(s.PersistentVolumeClaim.ClaimName, at.Child("claimName"), "names the claim")
		}},
	{"dataVolume", func(s *v1.VolumeSource) bool { return s.DataVolume != nil },
		func(s *v1.VolumeSource, at *field.Path) field.ErrorList {
			return fieldcheck.RequiredName(s.DataVolume.Name, at.Child("name"), "names the DataVolume")
		}},
	{"ephemeral", func(s *v1.VolumeSource) bool { return s.Ephemeral != nil }, ephemeral},
	{"emptyDisk", func(s *v1.VolumeSource) bool { return s.EmptyDisk != nil },
		func(s *v1.VolumeSource, at *field.Path) field.ErrorList {
			return fieldcheck.Quantity(s.EmptyDisk.Capacity, at.Child("capacity"), quantity.Storage(s.EmptyDisk.Capacity))
		}},
	{"hostDisk", func(s *v1.VolumeSource) bool { return s.HostDisk != nil }, hostDisk},
	{"cloudInitNoCloud", func(s *v1.VolumeSource) bool { return s.CloudInitNoCloud != nil },
		func(s *v1.VolumeSource, at *field.Path) field.ErrorList {
			return cloudInit(cloudInitData(*s.CloudInitNoCloud), at)
		}},
	{"cloudInitConfigDrive", func(s *v1.VolumeSource) bool { return s.CloudInitConfigDrive != nil },
		func(s *v1.VolumeSource, at *field.Path) field.ErrorList {
			return cloudInit(cloudInitData(*s.CloudInitConfigDrive), at)
		}},
	{"configMap", func(s *v1.VolumeSource) bool { return s.ConfigMap != nil },
		func(s *v1.VolumeSource, at *field.Path) field.ErrorList {
			return fieldcheck.RequiredName(s.ConfigMap.Name, at.Child("name"), "names the ConfigMap")
		}},
	{"secret", func(s *v1.VolumeSource) bool { return s.Secret != nil },
		func(s *v1.VolumeSource, at *field.Path) field.ErrorList {
			return fieldcheck.RequiredName(s.Secret.SecretName, at.Child("secretName"), "names the Secret")
		}},
	{"downwardAPI", func(s *v1.VolumeSource) bool { return s.DownwardAPI != nil }, downwardAPI},
	{"serviceAccount", func(s *v1.VolumeSource) bool { return s.ServiceAccount != nil },
		func(s *v1.VolumeSource, at *field.Path) field.ErrorList {
			return fieldcheck.RequiredName(s.ServiceAccount.ServiceAccountName, at.Child("serviceAccountName"), "names the service account")
		}},
	{"sysprep", func(s *v1.VolumeSource) bool { return s.Sysprep != nil }, sysprep},
	{"downwardMetrics", func(s *v1.VolumeSource) bool { return s.DownwardMetrics != nil },
		func(*v1.VolumeSource, *field.Path) field.ErrorList { return nil }},
}

func volumes(list []v1.Volume, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	names, claims, once := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for i := range list {
		v, at := &list[i], at.Index(i)
		if v.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), "disks refer to a volume by its name"))
		} else {
			errs = append(errs, fieldcheck.DNSLabel(v.Name, at.Child("name"))...)
		}
		errs = append(errs, fieldcheck.Unique(names, v.Name, at.Child("name"))...)
		errs = append(errs, volumeSource(&v.VolumeSource, at)...)
		if claim := volumeclaim.Disk(&v.VolumeSource); claim != "" {
			// Two disks on one claim would destroy each other's data.
			of := at.Child("persistentVolumeClaim", "claimName")
			if v.PersistentVolumeClaim == nil {
				of = at.Child("dataVolume", "name")
			}
			errs = append(errs, fieldcheck.Unique(claims, claim, of)...)
		}
		if kind := onlyOnce(&v.VolumeSource); kind != "" {
			if once[kind] {
				errs = append(errs, field.Forbidden(at, "a guest has at most one volume of the kind "+kind))
			}
			once[kind] = true
		}
	}
	return errs
}

func volumeSource(source *v1.VolumeSource, at *field.Path) field.ErrorList {
	var chosen []string
	var errs field.ErrorList
	for _, rule := range volumeRules {
		if rule.of(source) {
			chosen = append(chosen, rule.name)
			errs = append(errs, rule.judge(source, at.Child(rule.name))...)
		}
	}
	if len(chosen) == 0 && *source != (v1.VolumeSource{}) {
		// The unsupported kind was already reported.
		return nil
	}
	return append(errs, fieldcheck.ExactlyOne(at, chosen, "a volume has exactly one source")...)
}

// onlyOnce names the kind of a volume of which a guest has at most one.
func onlyOnce(source *v1.VolumeSource) string {
	switch {
	case source.CloudInitNoCloud != nil, source.CloudInitConfigDrive != nil:
		return "cloud-init"
	case source.ServiceAccount != nil:
		return "serviceAccount"
	case source.DownwardMetrics != nil:
		return "downwardMetrics"
	}
	return ""
}

func containerDisk(source *v1.VolumeSource, at *field.Path) field.ErrorList {
	d := source.ContainerDisk
	errs := absolute(d.Path, at.Child("path"))
	if d.Image == "" {
		errs = append(errs, field.Required(at.Child("image"), "names the image with the disk"))
	}
	return append(errs, fieldcheck.PullPolicy(d.ImagePullPolicy, at.Child("imagePullPolicy"))...)
}

func ephemeral(source *v1.VolumeSource, at *field.Path) field.ErrorList {
	claim := source.Ephemeral.PersistentVolumeClaim
	if claim == nil {
		return field.ErrorList{field.Required(at.Child("persistentVolumeClaim"), "is what the guest's writes are kept apart from")}
	}
	return fieldcheck.RequiredName(claim.ClaimName, at.Child("persistentVolumeClaim", "claimName"), "names the claim")
}

func hostDisk(source *v1.VolumeSource, at *field.Path) field.ErrorList {
	d := source.HostDisk
	var errs field.ErrorList
	if d.Path == "" {
		errs = append(errs, field.Required(at.Child("path"), "is where on the node the image lies"))
	}
	errs = append(errs, absolute(d.Path, at.Child("path"))...)
	switch d.Type {
	case v1.HostDiskExistsOrCreate:
		errs = append(errs, fieldcheck.Quantity(d.Capacity, at.Child("capacity"), quantity.Storage(d.Capacity))...)
	case v1.HostDiskExists:
		if !d.Capacity.IsZero() {
			errs = append(errs, field.Forbidden(at.Child("capacity"), "is for the type DiskOrCreate only; a disk that exists has its size"))
		}
	default:
		errs = append(errs, field.NotSupported(at.Child("type"), d.Type,
			[]v1.HostDiskType{v1.HostDiskExists, v1.HostDiskExistsOrCreate}))
	}
	return errs
}

func downwardAPI(source *v1.VolumeSource, at *field.Path) field.ErrorList {
	fields, at := source.DownwardAPI.Fields, at.Child("fields")
	if len(fields) == 0 {
		return field.ErrorList{field.Required(at, "says what the volume holds")}
	}
	var errs field.ErrorList
	for i := range fields {
		f, at := &fields[i], at.Index(i)
		if f.Path == "" || path.IsAbs(f.Path) || path.Clean("/"+f.Path) != "/"+f.Path {
			errs = append(errs, field.Invalid(at.Child("path"), f.Path, "must be a relative path without . and .."))
		}
		if (f.FieldRef == nil) == (f.ResourceFieldRef == nil) {
			errs = append(errs, field.Required(at, "has exactly one of fieldRef and resourceFieldRef"))
		}
		errs = append(errs, fieldRef(f.FieldRef, at.Child("fieldRef"))...)
		errs = append(errs, resourceFieldRef(f.ResourceFieldRef, layout.ComputeContainer, at.Child("resourceFieldRef"))...)
		if f.Mode != nil && (*f.Mode < 0 || *f.Mode > 0o777) {
			errs = append(errs, field.Invalid(at.Child("mode"), *f.Mode, "must be between 0 and 0777 (octal)"))
		}
	}
	return errs
}

func sysprep(source *v1.VolumeSource, at *field.Path) field.ErrorList {
	var chosen []string
	var errs field.ErrorList
	for _, s := range []struct {
		name, kind string
		ref        *corev1.LocalObjectReference
	}{{"configMap", "ConfigMap", source.Sysprep.ConfigMap}, {"secret", "Secret", source.Sysprep.Secret}} {
		if s.ref != nil {
			chosen = append(chosen, s.name)
			errs = append(errs, fieldcheck.RequiredName(s.ref.Name, at.Child(s.name, "name"), "names the "+s.kind+" with autounattend.xml or unattend.xml")...)
		}
	}
	return append(errs, fieldcheck.ExactlyOne(at, chosen, "the answers come from exactly one of configMap and secret")...)
}

type cloudInitData v1.CloudInitNoCloudSource

func cloudInit(data cloudInitData, at *field.Path) field.ErrorList {
	user := cloudInitPart{"userData", "userDataBase64", "secretRef", data.UserData, data.UserDataBase64, data.UserDataSecretRef}
	network := cloudInitPart{"networkData", "networkDataBase64", "networkDataSecretRef",
		data.NetworkData, data.NetworkDataBase64, data.NetworkDataSecretRef}
	if !user.given() && !network.given() {
		return field.ErrorList{field.Required(at, "must have at least one of userData, userDataBase64, secretRef, networkData, networkDataBase64 and networkDataSecretRef")}
	}
	return append(user.judge(at), network.judge(at)...)
}

type cloudInitPart struct {
	plainName, base64Name, secretName string
	plain, base64                     string
	secret                            *corev1.LocalObjectReference
}

func (p cloudInitPart) given() bool { return p.plain != "" || p.base64 != "" || p.secret != nil }

func (p cloudInitPart) judge(at *field.Path) field.ErrorList {
	if !p.given() {
		return nil
	}
	var chosen []string
	if p.plain != "" {
		chosen = append(chosen, p.plainName)
	}
	if p.base64 != "" {
		chosen = append(chosen, p.base64Name)
	}
	if p.secret != nil {
		chosen = append(chosen, p.secretName)
	}
	errs := fieldcheck.ExactlyOne(at, chosen, fmt.Sprintf("use one of %s, %s and %s", p.plainName, p.base64Name, p.secretName))
	if len(p.plain) > maxInline {
		errs = append(errs, p.tooLong(at.Child(p.plainName), len(p.plain)))
	}
	if decoded, err := base64.StdEncoding.DecodeString(p.base64); err != nil {
		errs = append(errs, field.Invalid(at.Child(p.base64Name), abbreviate(p.base64), "must be base64: "+err.Error()))
	} else if len(decoded) > maxInline {
		errs = append(errs, p.tooLong(at.Child(p.base64Name), len(decoded)))
	}
	if p.secret != nil {
		errs = append(errs, fieldcheck.RequiredName(p.secret.Name, at.Child(p.secretName, "name"), "names the Secret")...)
	}
	return errs
}

func (p cloudInitPart) tooLong(at *field.Path, length int) *field.Error {
	return field.Invalid(at, fmt.Sprintf("%d bytes", length),
		fmt.Sprintf("must be at most %d bytes; put more into a Secret and name it in %s", maxInline, p.secretName))
}

func abbreviate(text string) string {
	const most = 32
	if len(text) <= most {
		return text
	}
	return text[:most] + "…"
}
