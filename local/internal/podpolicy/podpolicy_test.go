package podpolicy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

func policy(t *testing.T, namespace, name, spec string) *networkingv1.NetworkPolicy {
	t.Helper()
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Fatal(err)
	}
	return p
}

func local(namespace, app string, last byte) Pod {
	return Pod{Namespace: namespace, Labels: labels.Set{"app": app}, Local: true, Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 77, 64, last})}}
}

func state(pods []Pod, policies ...*networkingv1.NetworkPolicy) State {
	return State{
		Bridge: "cni0", Host: netip.MustParseAddr("10.77.0.1"), Pods: pods, Policies: policies,
		Namespaces: map[string]labels.Set{"shop": {"team": "red"}, "lab": {"team": "blue"}},
	}
}

// internal/network tests such scripts in the kernel.
func TestTheScript(t *testing.T) {
	pods := []Pod{local("shop", "web", 2), local("shop", "db", 3), local("lab", "guest", 4)}
	got, over := Rules(state(pods,
		policy(t, "shop", "deny", `{podSelector: {}, policyTypes: [Ingress]}`),
		policy(t, "shop", "web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: blue}}}, {ipBlock: {cidr: 192.0.2.7/24, except: [192.0.2.0/25, 192.0.2.3/32]}}], ports: [{port: 443}, {port: 80}, {port: 81}]}]}`)))
	const want = `table inet drydock-policies
delete table inet drydock-policies
table inet drydock-policies {
	set set0 {
		type ipv4_addr
		elements = { 10.77.64.4 }
	}
	chain ingress0 {
		ip saddr @set0 tcp dport { 80-81, 443 } return
		ip saddr 192.0.2.0/24 ip saddr != { 192.0.2.0/25 } tcp dport { 80-81, 443 } return
		drop
	}
	chain ingress1 {
		drop
	}
	chain forward {
		type filter hook forward priority filter;
		iifname != "cni0" oifname != "cni0" accept
		meta nfproto ipv6 iifname "cni0" oifname "cni0" drop
		ct state established,related accept
		ip saddr 10.77.0.1 accept
		ip saddr . ip daddr { 10.77.64.2 . 10.77.64.2, 10.77.64.3 . 10.77.64.3 } accept
		ip daddr vmap { 10.77.64.2 : jump ingress0, 10.77.64.3 : jump ingress1 }
	}
}
`
	if got != want || len(over) > 0 {
		t.Errorf("the script is\n%s\n(too much in %v), want\n%s", got, over, want)
	}
}

// Caches list in any order, and an unchanged script must not be loaded.
func TestTheScriptDependsOnTheStateAlone(t *testing.T) {
	pods := []Pod{local("shop", "web", 2), local("shop", "db", 3), local("lab", "guest", 4)}
	policies := []*networkingv1.NetworkPolicy{
		policy(t, "shop", "a", `{podSelector: {}, ingress: [{from: [{namespaceSelector: {}}]}]}`),
		policy(t, "lab", "b", `{podSelector: {}, egress: [{}]}`), policy(t, "shop", "c", `{podSelector: {matchLabels: {app: db}}}`),
	}
	first, _ := Rules(state(slices.Clone(pods), slices.Clone(policies)...))
	slices.Reverse(pods)
	slices.Reverse(policies)
	if second, _ := Rules(state(pods, policies...)); first != second {
		t.Errorf("the script is\n%s\nand then\n%s", first, second)
	}
}

func TestWithoutIsolatedPodsThereIsNoTable(t *testing.T) {
	far := local("shop", "web", 2)
	far.Local = false
	for name, s := range map[string]State{
		"no policy":            state([]Pod{local("shop", "web", 2)}),
		"a policy for others":  state([]Pod{local("shop", "web", 2)}, policy(t, "shop", "a", `{podSelector: {matchLabels: {app: db}}}`)),
		"another namespace's":  state([]Pod{local("shop", "web", 2)}, policy(t, "lab", "a", `{podSelector: {}}`)),
		"the pod is elsewhere": state([]Pod{far}, policy(t, "shop", "a", `{podSelector: {}}`)),
	} {
		if got, _ := Rules(s); got != Without() {
			t.Errorf("%s: the script is\n%s", name, got)
		}
	}
}

// Rules above the limit must admit nobody, the pods stay isolated, and another namespace's policies hold.
func TestOneNamespaceCanNotFillTheTable(t *testing.T) {
	policies := []*networkingv1.NetworkPolicy{policy(t, "lab", "all", `{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: red}}}]}]}`)}
	for i := range 60 {
		p := policy(t, "shop", fmt.Sprintf("p%02d", i), `{podSelector: {}}`)
		for j := range 200 {
			p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{
				{IPBlock: &networkingv1.IPBlock{CIDR: fmt.Sprintf("10.%d.%d.0/24", i, j)}},
				{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}}},
			}})
		}
		policies = append(policies, p)
	}
	got, over := Rules(state([]Pod{local("shop", "web", 2), local("lab", "guest", 4)}, policies...))
	if rules := strings.Count(got, "return\n"); rules > most+10 || !slices.Equal(over, []string{"shop"}) {
		t.Errorf("there are %d rules, and too much in %v", rules, over)
	}
	if !strings.Contains(got, "10.77.64.2 : jump ingress1") || !strings.Contains(got, "10.77.64.4 : jump ingress0") {
		t.Error("a pod is not isolated")
	}
	_, admitted, _ := strings.Cut(got, "chain ingress0 {\n")
	if admitted, _, _ = strings.Cut(admitted, "}"); !strings.Contains(admitted, "return") {
		t.Errorf("the other namespace admits\n%s", admitted)
	}
}

// TestPodsOfOthersCostANamespaceNothing: a rule with a named port applies to pods of its own namespace.
func TestPodsOfOthersCostANamespaceNothing(t *testing.T) {
	web, hostile := local("shop", "web", 2), local("lab", "hostile", 4)
	web.Ports = []Port{{"http", corev1.ProtocolTCP, 80}}
	for i := range uint16(most + 1) {
		hostile.Ports = append(hostile.Ports, Port{"http", corev1.ProtocolTCP, i + 1})
	}
	got, over := Rules(state([]Pod{web, hostile}, policy(t, "shop", "all", `{podSelector: {}, ingress: [{ports: [{port: http}]}]}`)))
	if len(over) > 0 || !strings.Contains(got, "elements = { 10.77.64.2 . 80 }") {
		t.Errorf("too much is in %v; the script is\n%s", over, got)
	}
}

// TestAPodHasOnePortOfAName: that of the first container that runs as long as the pod.
func TestAPodHasOnePortOfAName(t *testing.T) {
	at := func(number int32) []corev1.ContainerPort {
		return []corev1.ContainerPort{{Name: "http", ContainerPort: number}}
	}
	p := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Ports: at(1)}, {Ports: at(2), RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}},
		Containers:     []corev1.Container{{Ports: at(3)}, {Ports: at(4)}},
	}}
	p.Status.PodIPs = []corev1.PodIP{{IP: "10.77.64.2"}}
	if got, _ := PodOf(p, "node1"); !slices.Equal(got.Ports, []Port{{"http", corev1.ProtocolTCP, 2}}) {
		t.Errorf("it has the ports %v", got.Ports)
	}
}

// No text in a label's key may make one selector look like another.
func TestSetsOfDifferentSelectorsAreDifferent(t *testing.T) {
	friend, stranger := local("shop", "friend", 3), local("lab", "stranger", 4)
	friend.Labels = map[string]string{"app.kubernetes.io/name": "web"}
	stranger.Labels = map[string]string{"name": "web"}
	selecting := func(namespaces, pods string) string {
		return fmt.Sprintf(`[{namespaceSelector: {matchExpressions: [{key: %s, operator: DoesNotExist}]}, podSelector: {matchLabels: {%s: web}}}]`, namespaces, pods)
	}
	got, _ := Rules(state([]Pod{local("shop", "web", 2), friend, stranger},
		policy(t, "lab", "all", `{podSelector: {}, policyTypes: [Egress], egress: [{to: `+selecting("untrusted/app.kubernetes.io", "name")+`}]}`),
		policy(t, "shop", "all", `{podSelector: {}, ingress: [{from: `+selecting("untrusted", "app.kubernetes.io/name")+`}]}`)))
	for _, want := range []string{"elements = { 10.77.64.3 }", "elements = { 10.77.64.4 }"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is missing in\n%s", want, got)
		}
	}
}

// TestRulesThatAdmitNobodyCostToo, because they are evaluated for each group of pods.
func TestRulesThatAdmitNobodyCostToo(t *testing.T) {
	var pods []Pod
	for i := range byte(100) {
		pods = append(pods, local("shop", fmt.Sprint("app", i), i))
	}
	all := policy(t, "shop", "all", `{podSelector: {}}`)
	for range 1000 {
		all.Spec.Ingress = append(all.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "none"}}}}})
	}
	policies := []*networkingv1.NetworkPolicy{all}
	for i := range 100 {
		policies = append(policies, policy(t, "shop", fmt.Sprint("p", i), fmt.Sprintf(`{podSelector: {matchLabels: {app: app%d}}}`, i)))
	}
	got, over := Rules(state(pods, policies...))
	if !slices.Equal(over, []string{"shop"}) || strings.Count(got, ": jump ingress") != len(pods) {
		t.Errorf("too much is in %v, and %d pods are isolated", over, strings.Count(got, ": jump ingress"))
	}
}

// TestSelectorsCostToo: each is matched against pods whenever rules are made. Those above the limit must admit nobody
// and isolate, in the directions that policies name; another namespace's policies must hold.
func TestSelectorsCostToo(t *testing.T) {
	values := func(n int) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf("v%d", i))
		}
		return "{matchExpressions: [{key: app, operator: NotIn, values: [" + strings.Join(list, ", ") + "]}]}"
	}
	many := func(n int, spec string) []*networkingv1.NetworkPolicy {
		var policies []*networkingv1.NetworkPolicy
		for i := range n {
			policies = append(policies, policy(t, "shop", fmt.Sprintf("p%04d", i), spec))
		}
		return policies
	}
	const admits, out = `ingress: [{}]`, `egress: [{}], policyTypes: [Egress]`
	for name, c := range map[string]struct {
		policies      []*networkingv1.NetworkPolicy
		over          []string
		admitted      bool
		chains, other int
	}{
		"as large as it may be":              {many(1, "{podSelector: "+values(mostSelectors-2)+", "+admits+"}"), nil, true, 1, 0},
		"a selector of pods that is larger":  {many(1, "{podSelector: "+values(mostSelectors-1)+", "+admits+"}"), []string{"shop"}, false, 1, 0},
		"one of those that are sent to":      {many(1, "{podSelector: "+values(mostSelectors)+", "+out+"}"), []string{"shop"}, false, 0, 1},
		"a peer's":                           {many(1, "{podSelector: {}, ingress: [{from: [{podSelector: "+values(mostSelectors)+"}]}]}"), []string{"shop"}, false, 1, 0},
		"a peer's of namespaces":             {many(1, "{podSelector: {}, ingress: [{from: [{namespaceSelector: "+values(mostSelectors)+"}]}]}"), []string{"shop"}, false, 1, 0},
		"a peer's that pairs of groups have": {append(many(1, "{podSelector: {}, ingress: [{from: [{podSelector: "+values(mostSelectors/2)+"}]}]}"), policy(t, "shop", "q", `{podSelector: {matchLabels: {app: db}}}`)), []string{"shop"}, true, 2, 0},
		"many policies":                      {many(mostSelectors+1, "{podSelector: {matchLabels: {app: none}}, "+admits+"}"), []string{"shop"}, false, 1, 0},
	} {
		pods := []Pod{local("shop", "web", 2), local("shop", "db", 3), local("lab", "guest", 4)}
		got, over := Rules(state(pods, append(c.policies, policy(t, "lab", "all", `{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}`))...))
		_, own, _ := strings.Cut(got, "chain ingress1 {\n")
		if c.chains == 0 {
			_, own, _ = strings.Cut(got, "chain egress0 {\n")
		}
		own, _, _ = strings.Cut(own, "}")
		admitted := strings.Contains(own, "return\n")
		if !slices.Equal(over, c.over) || admitted != c.admitted {
			t.Errorf("%s: too much is in %v, want %v; admitted is somebody: %v, want %v:\n%s", name, over, c.over, admitted, c.admitted, own)
		}
		if in, out := strings.Count(got, "\tchain ingress"), strings.Count(got, "\tchain egress"); in != 1+c.chains || out != c.other {
			t.Errorf("%s: there are %d chains for what is received and %d for what is sent, want %d and %d", name, in, out, 1+c.chains, c.other)
		}
		for _, pod := range []string{"10.77.64.2 : jump", "10.77.64.3 : jump"} {
			if !strings.Contains(got, pod) {
				t.Errorf("%s: a pod is not isolated", name)
			}
		}
		if !strings.Contains(got, "10.77.64.4 : jump ingress0") || !strings.Contains(got, "elements = { 10.77.64.4 }") {
			t.Errorf("%s: the other namespace's policy does not hold", name)
		}
	}
}

func TestWhatPoliciesSeeOfAPod(t *testing.T) {
	of := func(change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}, Spec: corev1.PodSpec{NodeName: "node1"}}
		p.Status.PodIPs = []corev1.PodIP{{IP: "10.77.64.2"}, {IP: "fd00::1"}, {IP: "; flush ruleset"}}
		change(p)
		return p
	}
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		sees bool
	}{
		"one that runs":               {of(func(*corev1.Pod) {}), true},
		"one with the node's address": {of(func(p *corev1.Pod) { p.Spec.HostNetwork = true }), false},
		"one that has ended":          {of(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), false},
		"one that has failed":         {of(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), false},
	} {
		got, ok := PodOf(test.pod, "node1")
		if ok != test.sees || ok && (!got.Local || fmt.Sprint(got.Addresses) != "[10.77.64.2]") {
			t.Errorf("%s: %+v, %t", name, got, ok)
		}
	}
	if got, _ := PodOf(of(func(*corev1.Pod) {}), "node2"); got.Local {
		t.Error("a pod of node1 is node2's")
	}
}

// The API server refuses them, but an object in etcd may have one.
func TestSelectorsThatCanNotBeReadIsolateAndAdmitNobody(t *testing.T) {
	broken := `{matchExpressions: [{key: app, operator: Bad}]}`
	for name, spec := range map[string]string{
		"of pods that are isolated": `{podSelector: ` + broken + `}`,
		"of peers":                  `{podSelector: {}, ingress: [{from: [{podSelector: ` + broken + `}]}]}`,
		"of namespaces":             `{podSelector: {}, ingress: [{from: [{namespaceSelector: ` + broken + `}]}]}`,
	} {
		got, _ := Rules(state([]Pod{local("shop", "web", 2)}, policy(t, "shop", "a", spec)))
		if !strings.Contains(got, "10.77.64.2 : jump ingress0") || strings.Contains(got, "return") {
			t.Errorf("%s: the script is\n%s", name, got)
		}
	}
}
