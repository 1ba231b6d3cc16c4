//! One pass over a module or a component: counts, bounds, validation.

use wasmparser::{
    ComponentTypeRef, Encoding, FuncValidatorAllocations, FunctionBody, Operator, Parser, Payload,
    TypeBounds, TypeRef, ValidPayload, Validator, WasmFeatures,
};

use super::{Kind, Refused, Shape};
use crate::Limits;

/// The features that the engine is configured for; a proposal that is not here is refused.
const FEATURES: WasmFeatures = WasmFeatures::WASM2.union(WasmFeatures::COMPONENT_MODEL);

const PAGE: u64 = 64 * 1024;

pub(super) fn walk(bytes: &[u8], limits: &Limits) -> Result<Shape, Refused> {
    let mut walker = Walker::new(bytes, limits);
    let mut validator = Validator::new_with_features(FEATURES);
    let mut allocations = FuncValidatorAllocations::default();
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload?;
        // Counted first: validation of a section allocates by its count.
        walker.count(&payload)?;
        if let ValidPayload::Func(function, body) = validator.payload(&payload)? {
            let mut function = function.into_validator(allocations);
            function.validate(&body)?;
            allocations = function.into_allocations();
        }
    }
    Ok(walker.shape)
}

struct Walker<'a> {
    limits: &'a Limits,
    shape: Shape,
    /// How many modules and components deep the parser is; the outermost is 1.
    depth: usize,
    items: u64,
    branch_targets: u64,
    table_elements: u64,
}

impl<'a> Walker<'a> {
    fn new(bytes: &[u8], limits: &'a Limits) -> Self {
        let shape = Shape {
            kind: Kind::Core,
            bytes: bytes.len() as u64,
            imports: Vec::new(),
            exports: Vec::new(),
            functions: 0,
            memory_bytes: 0,
        };
        Self {
            limits,
            shape,
            depth: 0,
            items: 0,
            branch_targets: 0,
            table_elements: 0,
        }
    }

    fn count(&mut self, payload: &Payload<'_>) -> Result<(), Refused> {
        match payload {
            Payload::Version { encoding, .. } => {
                self.depth += 1;
                if self.depth == 1 && *encoding == Encoding::Component {
                    self.shape.kind = Kind::Component;
                }
            }
            Payload::End(_) => self.depth -= 1,
            Payload::TypeSection(section) => self.items(section.count())?,
            Payload::ImportSection(section) => {
                self.items(section.count())?;
                for import in section.clone().into_imports() {
                    let import = import?;
                    self.import(import.module, import.name, &import.ty)?;
                }
            }
            Payload::FunctionSection(section) => {
                self.shape.functions += u64::from(section.count());
                if self.shape.functions > self.limits.module_functions {
                    return self.over("module-functions");
                }
            }
            Payload::TableSection(section) => {
                self.items(section.count())?;
                for table in section.clone() {
                    self.table(table?.ty.initial)?;
                }
            }
            Payload::MemorySection(section) => {
                self.items(section.count())?;
                for memory in section.clone() {
                    self.memory(memory?.initial)?;
                }
            }
            Payload::GlobalSection(section) => self.items(section.count())?,
            Payload::ExportSection(section) => {
                self.items(section.count())?;
                if self.depth == 1 {
                    for export in section.clone() {
                        self.shape.exports.push(export?.name.to_owned());
                    }
                }
            }
            Payload::ElementSection(section) => self.items(section.count())?,
            Payload::DataCountSection { count, .. } => self.items(*count)?,
            Payload::DataSection(section) => self.items(section.count())?,
            Payload::CodeSectionEntry(body) => self.function(body)?,
            Payload::ComponentTypeSection(section) => self.items(section.count())?,
            Payload::CoreTypeSection(section) => self.items(section.count())?,
            Payload::InstanceSection(section) => self.items(section.count())?,
            Payload::ComponentInstanceSection(section) => self.items(section.count())?,
            Payload::ComponentAliasSection(section) => self.items(section.count())?,
            Payload::ComponentCanonicalSection(section) => self.items(section.count())?,
            Payload::ComponentImportSection(section) => {
                self.items(section.count())?;
                if self.depth == 1 {
                    for import in section.clone() {
                        let import = import?;
                        // A name for a type that is written out; it gives nothing.
                        if !matches!(import.ty, ComponentTypeRef::Type(TypeBounds::Eq(_))) {
                            self.shape.imports.push(import.name.name.to_owned());
                        }
                    }
                }
            }
            Payload::ComponentExportSection(section) => {
                self.items(section.count())?;
                if self.depth == 1 {
                    for export in section.clone() {
                        self.shape.exports.push(export?.name.name.to_owned());
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn over(&self, limit: &str) -> Result<(), Refused> {
        Err(Refused::Limit(self.limits.hit(limit)))
    }

    fn items(&mut self, count: u32) -> Result<(), Refused> {
        self.items += u64::from(count);
        if self.items > self.limits.module_items {
            return self.over("module-items");
        }
        Ok(())
    }

    fn import(&mut self, module: &str, name: &str, ty: &TypeRef) -> Result<(), Refused> {
        match ty {
            TypeRef::Table(table) => self.table(table.initial)?,
            TypeRef::Memory(memory) => self.memory(memory.initial)?,
            _ => {}
        }
        if self.depth == 1 {
            self.shape.imports.push(format!("{module}/{name}"));
        }
        Ok(())
    }

    fn table(&mut self, initial: u64) -> Result<(), Refused> {
        self.table_elements = self.table_elements.saturating_add(initial);
        if self.table_elements > self.limits.table_elements {
            return self.over("table-elements");
        }
        Ok(())
    }

    fn memory(&mut self, pages: u64) -> Result<(), Refused> {
        let bytes = pages.saturating_mul(PAGE);
        self.shape.memory_bytes = self.shape.memory_bytes.saturating_add(bytes);
        if self.shape.memory_bytes > self.limits.memory {
            return self.over("memory");
        }
        Ok(())
    }

    fn function(&mut self, body: &FunctionBody<'_>) -> Result<(), Refused> {
        if body.range().len() as u64 > self.limits.function_bytes {
            return self.over("function-bytes");
        }
        let mut locals = 0_u64;
        for group in body.get_locals_reader()? {
            locals += u64::from(group?.0);
            if locals > self.limits.function_locals {
                return self.over("function-locals");
            }
        }
        let mut operators = body.get_operators_reader()?;
        while !operators.eof() {
            if let Operator::BrTable { targets } = operators.read()? {
                self.branch_targets += u64::from(targets.len());
                if self.branch_targets > self.limits.branch_targets {
                    return self.over("branch-targets");
                }
            }
        }
        Ok(())
    }
}
