package datavolume

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// ConfigName names the CDIConfig.
const ConfigName = "config"

// defaultOverhead is the share of a claim that its file system needs; CDI's default.
const defaultOverhead cdiv1.Percent = "0.06"

// Config is the CDIConfig with its defaults.
type Config struct {
	Preallocate        bool
	Resources          corev1.ResourceRequirements
	ImagePullSecrets   []corev1.LocalObjectReference
	InsecureRegistries []string
	Proxy              *cdiv1.ImportProxy
	// DeniedNetworks and AllowedNetworks are flags of virt-controller.
	DeniedNetworks, AllowedNetworks []string
	overhead                        cdiv1.FilesystemOverhead
}

// ConfigOf reads the CDIConfig; nil gives the defaults.
func ConfigOf(config *cdiv1.CDIConfig) Config {
	if config == nil {
		config = &cdiv1.CDIConfig{}
	}
	status := ConfigStatus(config)
	return Config{
		Preallocate:        status.Preallocation,
		Resources:          *status.DefaultPodResourceRequirements,
		ImagePullSecrets:   status.ImagePullSecrets,
		InsecureRegistries: config.Spec.InsecureRegistries,
		Proxy:              status.ImportProxy,
		overhead:           *status.FilesystemOverhead,
	}
}

// ConfigStatus returns the settings in force.
func ConfigStatus(config *cdiv1.CDIConfig) cdiv1.CDIConfigStatus {
	out := *config.Status.DeepCopy()
	// There is no default: clients are mostly outside of the cluster and can't resolve its Services.
	out.UploadProxyURL = nil
	if override := config.Spec.UploadProxyURLOverride; override != nil && *override != "" {
		out.UploadProxyURL = new(*override)
	}
	overhead := cdiv1.FilesystemOverhead{Global: defaultOverhead}
	if set := config.Spec.FilesystemOverhead; set != nil {
		if valid(set.Global) {
			overhead.Global = set.Global
		}
		for class, percent := range set.StorageClass {
			if valid(percent) {
				if overhead.StorageClass == nil {
					overhead.StorageClass = map[string]cdiv1.Percent{}
				}
				overhead.StorageClass[class] = percent
			}
		}
	}
	out.FilesystemOverhead = &overhead
	out.Preallocation = config.Spec.Preallocation != nil && *config.Spec.Preallocation
	out.ImagePullSecrets = config.Spec.ImagePullSecrets
	out.ImportProxy = config.Spec.ImportProxy
	// The worker's memory does not depend on the image.
	resources := corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
		Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("256Mi")},
	}
	if set := config.Spec.PodResourceRequirements; set != nil {
		override(resources.Requests, set.Requests)
		override(resources.Limits, set.Limits)
	}
	out.DefaultPodResourceRequirements = &resources
	return out
}

func override(list, with corev1.ResourceList) {
	for name, quantity := range with {
		list[name] = quantity
	}
}

func valid(p cdiv1.Percent) bool {
	share, err := strconv.ParseFloat(string(p), 64)
	return err == nil && share >= 0 && share < 1
}

func (c Config) overheadOf(class string) float64 {
	percent, ok := c.overhead.StorageClass[class]
	if !ok {
		percent = c.overhead.Global
	}
	share, err := strconv.ParseFloat(string(percent), 64)
	if err != nil {
		share, _ = strconv.ParseFloat(string(defaultOverhead), 64)
	}
	return share
}
