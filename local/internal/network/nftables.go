package network

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"drydock.dev/local/internal/layout"
)

// baseChain is a chain with a netfilter hook, in nft's JSON format.
type baseChain struct {
	Family, Table, Name, Type, Hook string
}

// firewalldTable is owned by firewalld, which may forbid changes by others.
const firewalldTable = "firewalld"

// throughNFTables replaces our rules in every chain that filters the cluster's packets, except in those that iptables
// manages: it could not read native nft rules.
func throughNFTables(c layout.Cluster, rules []accepted, iptables bool) error {
	chains, err := filterChains()
	if err != nil {
		return err
	}
	var script strings.Builder
	firewalld := false
	for _, chain := range chains {
		switch {
		case strings.HasPrefix(chain.Table, "drydock-"):
			continue // a cluster's own table, which drops nothing of another cluster
		case iptables && chain.Family == "ip" && chain.Table == "filter" && chain.Name == strings.ToUpper(chain.Hook):
			continue
		case chain.Table == firewalldTable:
			firewalld = true
			continue
		}
		if err := replaceRules(&script, c, chain, rules); err != nil {
			return err
		}
	}
	var errs []error
	if script.Len() > 0 {
		errs = append(errs, nft(script.String()))
	}
	if firewalld {
		errs = append(errs, throughFirewalld(c, len(rules) > 0))
	}
	return errors.Join(errs...)
}

func replaceRules(script *strings.Builder, c layout.Cluster, chain baseChain, rules []accepted) error {
	where := fmt.Sprintf("%s %s %s", chain.Family, chain.Table, chain.Name)
	var listed struct {
		NFTables []struct {
			Rule *struct {
				Handle  int
				Comment string
			}
		}
	}
	if err := nftJSON(&listed, "list", "chain", chain.Family, chain.Table, chain.Name); err != nil {
		return err
	}
	for _, item := range listed.NFTables {
		if item.Rule != nil && item.Rule.Comment == c.Table() {
			fmt.Fprintf(script, "delete rule %s handle %d\n", where, item.Rule.Handle)
		}
	}
	for _, rule := range slices.Backward(rules) {
		if rule.hook == chain.Hook {
			fmt.Fprintf(script, "insert rule %s %s accept comment %q\n", where, rule.nft, c.Table())
		}
	}
	return nil
}

func filterChains() ([]baseChain, error) {
	var listed struct {
		NFTables []struct{ Chain *baseChain }
	}
	if err := nftJSON(&listed, "list", "chains"); err != nil {
		return nil, err
	}
	var chains []baseChain
	for _, item := range listed.NFTables {
		chain := item.Chain
		if chain != nil && chain.Type == "filter" && (chain.Family == "ip" || chain.Family == "inet") &&
			(chain.Hook == input || chain.Hook == forward) {
			chains = append(chains, *chain)
		}
	}
	return chains, nil
}

func nftJSON(into any, args ...string) error {
	out, err := exec.Command("nft", append([]string{"-j", "-a"}, args...)...).Output()
	if err == nil {
		err = json.Unmarshal(out, into)
	}
	if err != nil {
		return fmt.Errorf("reading the host's firewall with nft %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// throughFirewalld adds the bridge to firewalld's trusted zone, or removes it, at runtime only. Our
// own table still protects etcd and the cluster.
func throughFirewalld(c layout.Cluster, trust bool) error {
	const zone = "--zone=trusted"
	trusted := exec.Command("firewall-cmd", zone, "--query-interface="+c.Bridge()).Run() == nil
	if trusted == trust {
		return nil
	}
	change := "--remove-interface=" + c.Bridge()
	if trust {
		change = "--add-interface=" + c.Bridge()
	}
	if out, err := exec.Command("firewall-cmd", zone, change).CombinedOutput(); err != nil {
		return fmt.Errorf("changing the host's firewall: firewall-cmd %s %s: %w: %s", zone, change, err, out)
	}
	return nil
}
