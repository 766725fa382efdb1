package clusterconfig

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestWhatProcessesFollow(t *testing.T) {
	var kv v1.KubeVirt
	manifest := `
spec:
  configuration:
    developerConfiguration:
      logVerbosity: {virtAPI: 3, virtController: 9, virtHandler: 4, nodeVerbosity: {one: 6, two: 99, three: 0}}
    apiConfiguration: {restClient: {rateLimiter: {tokenBucketRateLimiter: {qps: 50, burst: 100}}}}
    webhookConfiguration: {restClient: {rateLimiter: {tokenBucketRateLimiter: {qps: 7.5}}}}
    controllerConfiguration: {restClient: {rateLimiter: {tokenBucketRateLimiter: {burst: 9}}}}
    handlerConfiguration: {restClient: {rateLimiter: {tokenBucketRateLimiter: {qps: 5, burst: -1}}}}
`
	if err := yaml.UnmarshalStrict([]byte(manifest), &kv); err != nil {
		t.Fatal(err)
	}
	s := FromKubeVirt(&kv)
	if v := s.Verbosity; v.API != 3 || v.Controller != MaxVerbosity {
		t.Errorf("verbosity %+v", v)
	}
	for node, want := range map[string]int{"one": 6, "two": MaxVerbosity, "three": 0, "four": 4} {
		if got := s.Verbosity.HandlerOn(node); got != want {
			t.Errorf("virt-handler on node %s logs at %d, want %d", node, got, want)
		}
	}
	want := Rates{API: Rate{50, 100}, Webhook: Rate{7.5, 8}, Handler: Rate{5, 5}}
	if s.Rates != want {
		t.Errorf("rates %+v, want %+v", s.Rates, want)
	}
	if want.Controller.Limited() || !want.API.Limited() {
		t.Error("no rate is a limit, or one is none")
	}
	for _, kv := range []*v1.KubeVirt{nil, {}, {Spec: v1.KubeVirtSpec{Configuration: v1.KubeVirtConfiguration{
		APIConfiguration: &v1.ReloadableComponentConfiguration{RestClient: &v1.RESTClientConfiguration{RateLimiter: &v1.RateLimiter{}}},
	}}}} {
		if s := FromKubeVirt(kv); s.Rates != (Rates{}) || s.Verbosity.API != 0 || s.Verbosity.HandlerOn("one") != 0 {
			t.Errorf("by default: %+v, %+v", s.Rates, s.Verbosity)
		}
	}
}

func TestEveryChangeIsTold(t *testing.T) {
	var told []int
	w := &Watched{Current: &Current{}, Changed: func(s Settings) { told = append(told, s.Verbosity.API) }}
	kv := &v1.KubeVirt{}
	kv.Spec.Configuration.DeveloperConfiguration = &v1.DeveloperConfiguration{LogVerbosity: &v1.LogVerbosity{VirtAPI: 2}}
	w.Seen(kv)
	w.Gone(kv)
	if len(told) != 2 || told[0] != 2 || told[1] != 0 {
		t.Errorf("told were the levels %v", told)
	}
}
