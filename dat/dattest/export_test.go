package dattest

// Groups names the groups of rules, and all rules as group/rule.
func Groups() (names, rules []string) {
	for _, g := range groups() {
		names = append(names, g.name)
		for _, r := range g.rules {
			rules = append(rules, g.name+"/"+r.name)
		}
	}
	return names, rules
}
