package supported

import (
	"reflect"

	"k8s.io/apimachinery/pkg/util/validation/field"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// Nothing is refused: the same manifest installs CDI on clusters with its operator.
var cdiTable = table{
	"imagePullPolicy":       idle("no component of CDI is installed; the KubeVirt object's imagePullPolicy is that of Drydock's"),
	"uninstallStrategy":     idle("the object's deletion removes nothing, and nothing keeps it"),
	"infra":                 idle("no component of CDI is installed; the KubeVirt object's infra is about Drydock's"),
	"workload":              idle("a worker pod goes where its claim can be used"),
	"customizeComponents":   idle("no component of CDI is installed; the KubeVirt object's customizeComponents is about Drydock's"),
	"cloneStrategyOverride": idle("how a claim is cloned follows from its source and its class"),
	"certConfig":            idle("the certificates are Drydock's; the KubeVirt object's certificateRotateStrategy is about them"),
	"priorityClass":         idle("no component of CDI is installed"),

	"config.uploadProxyURLOverride":          yes(),
	"config.importProxy.HTTPProxy":           yes(),
	"config.importProxy.HTTPSProxy":          yes(),
	"config.importProxy.noProxy":             yes(),
	"config.importProxy.trustedCAProxy":      idle("a DataVolume's certConfigMap names the authorities that its import trusts"),
	"config.scratchSpaceStorageClass":        idle("images become disks without scratch space"),
	"config.podResourceRequirements":         noted("requests and limits of worker pods; what is not set keeps its default"),
	"config.featureGates":                    idle("what Drydock implements is there without a gate").withOnly("[HonorWaitForFirstConsumer]"),
	"config.webhookPvcRendering":             idle("claims that no DataVolume makes are left as they are"),
	"config.filesystemOverhead.global":       noted("0.06 if not set"),
	"config.filesystemOverhead.storageClass": yes(),
	"config.preallocation":                   yes(),
	"config.insecureRegistries":              yes(),
	"config.dataVolumeTTLSeconds":            idle("DataVolumes stay"),
	"config.tlsSecurityProfile":              idle("the KubeVirt object's tlsConfiguration is that of the upload proxy"),
	"config.imagePullSecrets":                yes(),
	"config.logVerbosity":                    idle("the KubeVirt object's logVerbosity is that of virt-controller and virt-api, which do CDI's work"),
}

// CDISpecWarnings returns warnings for the fields of a CDI object that have no effect.
func CDISpecWarnings(spec *cdiv1.CDISpec, path *field.Path) []string {
	return warnings(cdiTable, reflect.ValueOf(spec), path)
}
