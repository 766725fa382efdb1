package datavolume

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

func TestTheShareOfAFileSystemIsThatOfItsClass(t *testing.T) {
	for name, test := range map[string]struct {
		set     *cdiv1.FilesystemOverhead
		global  cdiv1.Percent
		classes map[string]cdiv1.Percent
		of      map[string]float64
	}{
		"nothing is set":                {nil, "0.06", nil, map[string]float64{"": 0.06, "fast": 0.06}},
		"one for all":                   {&cdiv1.FilesystemOverhead{Global: "0.1"}, "0.1", nil, map[string]float64{"": 0.1, "fast": 0.1}},
		"nothing of the claim":          {&cdiv1.FilesystemOverhead{Global: "0"}, "0", nil, map[string]float64{"": 0}},
		"nearly all of the claim":       {&cdiv1.FilesystemOverhead{Global: "0.99"}, "0.99", nil, map[string]float64{"": 0.99}},
		"all of the claim is no share":  {&cdiv1.FilesystemOverhead{Global: "1"}, "0.06", nil, map[string]float64{"": 0.06}},
		"less than nothing is no share": {&cdiv1.FilesystemOverhead{Global: "-0.1"}, "0.06", nil, map[string]float64{"": 0.06}},
		"what is no number is no share": {&cdiv1.FilesystemOverhead{Global: "x"}, "0.06", nil, map[string]float64{"": 0.06}},
		"more than one class has its own": {
			&cdiv1.FilesystemOverhead{StorageClass: map[string]cdiv1.Percent{"fast": "0.2", "slow": "0.3", "odd": "2"}}, "0.06",
			map[string]cdiv1.Percent{"fast": "0.2", "slow": "0.3"}, map[string]float64{"fast": 0.2, "slow": 0.3, "odd": 0.06},
		},
	} {
		t.Run(name, func(t *testing.T) {
			config := &cdiv1.CDIConfig{Spec: cdiv1.CDIConfigSpec{FilesystemOverhead: test.set}}
			status := ConfigStatus(config).FilesystemOverhead
			if status.Global != test.global || !maps.Equal(status.StorageClass, test.classes) {
				t.Errorf("in force are %s and %v, want %s and %v", status.Global, status.StorageClass, test.global, test.classes)
			}
			for class, want := range test.of {
				if got := ConfigOf(config).overheadOf(class); got != want {
					t.Errorf("the file system of class %q needs %v, want %v", class, got, want)
				}
			}
		})
	}
}

// Most uploads come from outside of the cluster, so the URL must name no Service.
func TestWhereUploadsAreSent(t *testing.T) {
	for name, test := range map[string]struct {
		override *string
		want     string
	}{
		"nothing is set":    {nil, ""},
		"nothing is in it":  {new(""), ""},
		"an address is set": {new("upload.example.com"), "upload.example.com"},
	} {
		config := &cdiv1.CDIConfig{Spec: cdiv1.CDIConfigSpec{UploadProxyURLOverride: test.override}}
		config.Status.UploadProxyURL = new("cdi-uploadproxy.kubevirt.svc") // from an earlier version
		got := ""
		if url := ConfigStatus(config).UploadProxyURL; url != nil {
			got = *url
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestWhatTheConfigSaysOfWorkers(t *testing.T) {
	limits := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
	config := ConfigOf(&cdiv1.CDIConfig{Spec: cdiv1.CDIConfigSpec{
		Preallocation: new(true), PodResourceRequirements: &corev1.ResourceRequirements{Limits: limits},
	}})
	if memory, cpu := config.Resources.Limits.Memory(), config.Resources.Limits.Cpu(); memory.String() != "1Gi" || cpu.String() != "2" || !config.Preallocate {
		t.Errorf("limits of %s and %s, preallocation %v; want 1Gi as set, 2 as usual, and true", memory, cpu, config.Preallocate)
	}
	for name, off := range map[string]*bool{"nothing is set": nil, "it is off": new(false)} {
		if ConfigOf(&cdiv1.CDIConfig{Spec: cdiv1.CDIConfigSpec{Preallocation: off}}).Preallocate {
			t.Errorf("%s: disks are preallocated", name)
		}
	}
}
