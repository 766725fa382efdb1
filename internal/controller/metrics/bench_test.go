package metrics

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

// BenchmarkCollect gathers the metrics of a thousand running VMs, each with two disks and an interface.
func BenchmarkCollect(b *testing.B) {
	const machines = 1000
	var cache shelf
	for i := range machines {
		vm := v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("machine-", i), Namespace: "shop", CreationTimestamp: at(1000)}}
		spec := template(v1.DomainSpec{CPU: &v1.CPU{Cores: 2}, Memory: &v1.Memory{Guest: new(resource.MustParse("2Gi"))}}).Spec
		for _, name := range []string{"root", "data"} {
			spec.Volumes = append(spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: name}}})
		}
		spec.Networks = []v1.Network{{Name: "default", NetworkSource: v1.NetworkSource{Pod: &v1.PodNetwork{}}}}
		spec.Domain.Devices.Interfaces = []v1.Interface{{Name: "default", InterfaceBindingMethod: v1.InterfaceBindingMethod{Masquerade: &v1.InterfaceMasquerade{}}}}
		vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{Spec: spec}
		vm.Status.PrintableStatus = v1.VirtualMachineStatusRunning
		vm.Status.Conditions = []v1.VirtualMachineCondition{{Type: v1.VirtualMachineReady, LastTransitionTime: at(2000)}}
		vmi := v1.VirtualMachineInstance{ObjectMeta: vm.ObjectMeta, Spec: spec}
		vmi.Status = v1.VirtualMachineInstanceStatus{
			Phase: v1.Running, NodeName: fmt.Sprint("node-", i%10),
			Interfaces: []v1.VirtualMachineInstanceNetworkInterface{{Name: "default", IP: "10.0.0.2"}},
		}
		cache.vms, cache.vmis = append(cache.vms, vm), append(cache.vmis, vmi)
	}
	for _, name := range []string{"root", "data"} {
		claim := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"}}
		claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		cache.claims = append(cache.claims, claim)
	}
	c := leader(cache)
	b.ReportAllocs()
	for b.Loop() {
		out, n := make(chan prometheus.Metric, 1024), 0
		go func() {
			defer close(out)
			c.Collect(out)
		}()
		for range out {
			n++
		}
		if n < 18*machines {
			b.Fatalf("there are %d series", n)
		}
	}
}
