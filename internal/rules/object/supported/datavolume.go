package supported

import (
	"reflect"

	"k8s.io/apimachinery/pkg/util/validation/field"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

var dataVolumeTable = table{
	"source.http.url":                       yes(),
	"source.http.secretRef":                 noted("a Secret with accessKeyId and secretKey, for basic authentication"),
	"source.http.certConfigMap":             noted("a ConfigMap with certificate authorities"),
	"source.http.extraHeaders":              yes(),
	"source.http.secretExtraHeaders":        yes(),
	"source.http.checksum":                  noted("md5:, sha1:, sha256: or sha512: and the sum in hexadecimal, of the file as the server sends it"),
	"source.http.insecureSkipVerify":        yes(),
	"source.s3":                             no("use http with a presigned URL"),
	"source.gcs":                            no("use http with a signed URL"),
	"source.registry.url":                   noted("docker://…; oci-archive:///… is a file in the worker and not supported"),
	"source.registry.imageStream":           no("use url with the image that the stream names"),
	"source.registry.pullMethod":            only("pod", "node"),
	"source.registry.secretRef":             yes(),
	"source.registry.certConfigMap":         yes(),
	"source.registry.platform.architecture": only("amd64"),
	"source.pvc.namespace":                  noted("another namespace needs the right to create datavolumes/source there"),
	"source.pvc.name":                       yes(),
	"source.upload":                         yes(),
	"source.blank":                          yes(),
	"source.imageio":                        no("use http or an upload"),
	"source.vddk":                           no("export the disk, and use http or an upload"),
	"source.snapshot.namespace":             yes(),
	"source.snapshot.name":                  yes(),
	"sourceRef.kind":                        only("DataSource"),
	"sourceRef.namespace":                   noted("another namespace needs the right to create datavolumes/source there"),
	"sourceRef.name":                        noted("of a DataSource, which leads to a claim or snapshot in its own namespace"),
	"pvc":                                   noted("the claim as it is to be, without dataSource"),
	"storage.accessModes":                   yes(),
	"storage.selector":                      yes(),
	"storage.resources":                     yes(),
	"storage.volumeName":                    yes(),
	"storage.storageClassName":              yes(),
	"storage.volumeMode":                    only("Filesystem", "Block", "FromStorageProfile"),
	"storage.dataSource":                    no("use source or sourceRef"),
	"storage.dataSourceRef":                 no("use source or sourceRef"),
	"priorityClassName":                     noted("of the worker pods in its namespace"),
	"serviceAccountName":                    noted("of the worker pods, which get no token"),
	"contentType":                           only("kubevirt", "archive"),
	"checkpoints":                           no("a disk is imported whole; import it when its VM does not run any more"),
	"finalCheckpoint":                       off().because("it belongs to checkpoints"),
	"preallocation":                         yes(),
}

// DataVolumeSpec returns errors for the unsupported fields that a spec at path sets.
func DataVolumeSpec(spec *cdiv1.DataVolumeSpec, path *field.Path) field.ErrorList {
	return check(dataVolumeTable, reflect.ValueOf(spec), path)
}
