# Proofs that can fail: a control takes a mechanism out of a copy of the source, or breaks it there, and
# runs the test that is to notice. CAUGHT: the test failed. NOT CAUGHT: it passed, and so proves nothing;
# or the source has changed and the control no longer applies.
#
# `.ci/controls` and `.ci/mutations` source this, list their controls, and call `take_out "$@"`.

cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
directory="${CARGO_TARGET_DIR:-$root/target}/controls"
copy="$directory/tree"
export CARGO_TARGET_DIR="$directory/build"
# Most of a control's time is its build, and nobody debugs it.
export CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_TEST_DEBUG=0
# A control says itself which backend it is about.
unset ROTOR_BACKEND

# The longest a test may take: a mechanism that is gone often shows by a hang.
seconds_max=120

names=() targets=() tests=() settings=() removals=()

# control NAME TEST-TARGET TEST-NAME [VARIABLE=VALUE ...]. The target `lib` is the library's own tests.
# Standard input says what is taken out: for each place a line `@@ FILE`, the text as it stands there
# once, a line of dashes, and what stands in its place.
control() {
    names+=("$1")
    targets+=("$2")
    tests+=("$3")
    settings+=("${*:4}")
    removals+=("$(cat)")
}

# The source as it stands, committed or not.
copy_source() {
    rm -rf "$copy"
    mkdir -p "$copy"
    git ls-files -z --cached --others --exclude-standard | tar -c --null -T - | tar -x -C "$copy"
    # The files have their old times, and what was built last may be newer and of another text.
    touch "$copy/src/lib.rs"
}

# remove TREE TEXT: takes it out there. With ONLY_LOOK set it says whether it could.
remove() {
    (cd "$1" && PLACES="$2" perl -e '
        for my $place (split /^\@\@ /m, $ENV{PLACES}) {
            next unless $place =~ /\S/;
            my ($file, $rest) = $place =~ /\A(\S+)\n(.*)\z/s or die "no file named\n";
            my ($before, $after) = $rest =~ /\A(.*?)\n-----\n?(.*)\z/s or die "no divider\n";
            $after =~ s/\n\z//;
            open my $in, "<", $file or die "$file: $!\n";
            local $/;
            my $text = <$in>;
            my $found = () = $text =~ /\Q$before\E/g;
            die "$file has the text $found times\n" unless $found == 1;
            next if $ENV{ONLY_LOOK};
            $text =~ s/\Q$before\E/$after/;
            open my $out, ">", $file or die "$file: $!\n";
            print $out $text;
        }
    ')
}

# Cargo's words for a target.
words_of() {
    if [[ $1 == lib ]]; then echo --lib; else echo "--test $1"; fi
}

# build TEST-TARGET
build() {
    # shellcheck disable=SC2046 # two words
    (cd "$copy" && cargo test --locked -p rotor $(words_of "$1") --no-run)
}

# run_test NUMBER: the test of that control, built already. 124: it hangs.
run_test() {
    # shellcheck disable=SC2046,SC2086 # two words; a word a variable
    (cd "$copy" && env ${settings[$1]} timeout "$seconds_max" cargo test --locked -p rotor \
        $(words_of "${targets[$1]}") "${tests[$1]}" -- --nocapture)
}

# Tries the control of that number. Says how it went; false if it was not caught.
try() {
    local name=${names[$1]} target=${targets[$1]} test=${tests[$1]} log="$directory/${names[$1]}.log"
    local status=0 start=$SECONDS how=""
    copy_source
    if ! remove "$copy" "${removals[$1]}"; then
        printf 'NOT CAUGHT  %s: the source has changed, and the control must follow\n' "$name"
        return 1
    fi
    if ! build "$target" >"$log" 2>&1; then
        printf 'NOT CAUGHT  %s: it does not compile without the mechanism; see %s\n' "$name" "$log"
        return 1
    fi
    run_test "$1" >>"$log" 2>&1 || status=$?
    if grep -q '^running 0 tests' "$log"; then
        printf 'NOT CAUGHT  %s: %s has no test %s\n' "$name" "$target" "$test"
        return 1
    fi
    if ((status == 0)); then
        printf 'NOT CAUGHT  %s: %s passes without the mechanism\n' "$name" "$test"
        return 1
    fi
    [[ -z ${settings[$1]} ]] || how=" with ${settings[$1]}"
    ((status != 124)) || how+=", which hangs"
    printf 'CAUGHT      %s, by %s%s (%d s)\n' "$name" "$test" "$how" $((SECONDS - start))
    grep -oh "buffers_hit.*bytes_written: [0-9]*" "$log" | head -n 1 || true
}

# A test that fails in any case would catch everything: those of the controls of these numbers are seen
# to pass with nothing taken out.
pass_untouched() {
    local number seen=" " log="$directory/untouched.log" failed=0
    copy_source
    : >"$log"
    for number in "$@"; do
        local key="${targets[$number]}/${tests[$number]}/${settings[$number]// //}"
        [[ $seen != *" $key "* ]] || continue
        seen+="$key "
        if ! build "${targets[$number]}" >>"$log" 2>&1 || ! run_test "$number" >>"$log" 2>&1; then
            printf 'FAILS       %s with nothing taken out; see %s\n' "${tests[$number]}" "$log"
            failed=1
        fi
    done
    return "$failed"
}

# Whether every control still applies: the source has what it takes out, once, and its test exists. Two
# controls of one file often stale together, and nobody would notice before the whole list is run.
check_all() {
    local number stale=0
    for number in "${!names[@]}"; do
        if ! ONLY_LOOK=1 remove "$root" "${removals[$number]}"; then
            printf 'STALE       %s: the source has changed, and the control must follow\n' "${names[$number]}"
            stale=$((stale + 1))
        elif ! grep -rqF -- "${tests[$number]##*::}" src tests; then
            printf 'STALE       %s: there is no test %s\n' "${names[$number]}" "${tests[$number]}"
            stale=$((stale + 1))
        fi
    done
    printf '%d of %d controls apply\n' $((${#names[@]} - stale)) "${#names[@]}"
    ((stale == 0))
}

# take_out [NAME ...]: all controls, or those named. `--list` prints their names; `--check` looks whether
# they apply; `--sample N` does so, and takes N, always the same, spread over the list.
take_out() {
    local number count=${#names[@]} chosen=() caught=0
    if [[ ${1:-} == --list ]]; then
        printf '%s\n' "${names[@]}"
        return
    elif [[ ${1:-} == --check ]]; then
        check_all
        return
    elif [[ ${1:-} == --sample ]]; then
        check_all || exit 1
        local sample=${2:?--sample needs a number}
        for ((number = 0; number < sample; number++)); do
            chosen+=($(((2 * number + 1) * count / (2 * sample))))
        done
    elif (($# > 0)); then
        local name
        for name in "$@"; do
            [[ " ${names[*]} " == *" $name "* ]] || { echo "no control '$name'; see --list" >&2; exit 2; }
        done
        for number in "${!names[@]}"; do
            [[ " $* " != *" ${names[$number]} "* ]] || chosen+=("$number")
        done
    else
        chosen=("${!names[@]}")
    fi
    mkdir -p "$directory"
    exec 9>"$directory/lock"
    flock --nonblock 9 || { echo "another run uses $directory" >&2; exit 2; }
    pass_untouched "${chosen[@]}" || exit 1
    for number in "${chosen[@]}"; do
        if try "$number"; then
            caught=$((caught + 1))
        fi
    done
    printf '%d of %d caught\n' "$caught" "${#chosen[@]}"
    ((caught == ${#chosen[@]}))
}
